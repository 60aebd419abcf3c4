"""Threads have hooks of their own; references, memory and caches stay level."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

from flambeau_capture._native import Entry, FrameCache, active, compiled
from frames import keep_all, replacing


def test_threads_hook_only_their_own_frames():
    def f():
        return 1000

    cache = replacing(1000, 2000)
    inside, release = threading.Event(), threading.Event()
    results = {}

    def waits():
        inside.set()
        assert release.wait(10)
        return f()

    def worker():
        results["compiled"] = compiled(waits, cache)()

    thread = threading.Thread(target=worker)
    thread.start()
    assert inside.wait(10)
    results["plain"] = f()
    results["active"] = active()
    release.set()
    thread.join()
    assert results == {"compiled": 2000, "plain": 1000, "active": None}


def test_many_threads_at_once():
    def f(x):
        return x + 1000

    cache = replacing(1000, 2000)
    g = compiled(f, cache)
    errors = []

    def worker(k):
        for i in range(2000):
            if g(i) != i + 2000 or f(i) != i + 1000:
                errors.append((k, i))

    threads = [threading.Thread(target=worker, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert len(cache.entries(f.__code__)) >= 1


def test_references_stay_level():
    class Token:
        pass

    def f(a, *args, k=None, **kwargs):
        local = (a, args, 1000)
        return local[0]

    def raises(a):
        raise ValueError(a)

    cache = replacing(1000, 2000)
    keep = FrameCache(keep_all)
    g, h = compiled(f, cache), compiled(raises, keep)
    token, extra = Token(), Token()

    def burst(n):
        for _ in range(n):
            g(token, extra, k=extra, z=token)
            try:
                h(token)
            except ValueError:
                continue

    burst(10)
    gc.collect()
    watched = (token, extra, f, f.__code__, cache, cache.entries(f.__code__)[0], None.__class__)
    before = [sys.getrefcount(x) for x in watched]
    burst(10_000)
    gc.collect()
    assert [sys.getrefcount(x) for x in watched] == before


def test_memory_stays_level():
    import tracemalloc

    def f(a, b=2, *c):
        return [a, b, c, 1000]

    g = compiled(f, replacing(1000, 2000))
    for i in range(100):
        g(i)
    tracemalloc.start()
    try:
        for i in range(100):
            g(i)
        first = tracemalloc.get_traced_memory()[0]
        for i in range(10_000):
            g(i, i, i)
        assert tracemalloc.get_traced_memory()[0] - first < 20_000
    finally:
        tracemalloc.stop()


def test_cache_dies_with_its_callable():
    class Token:
        pass

    def make():
        token = Token()

        def f():
            return token

        cache = FrameCache(lambda code, func, l, fr, c: Entry(code.replace(), None, (token, cache)))
        g = compiled(f, cache)
        g()
        return weakref.ref(token), weakref.ref(cache)

    refs = make()
    gc.collect()
    assert [r() for r in refs] == [None, None]
