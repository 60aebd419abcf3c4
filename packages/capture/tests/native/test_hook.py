"""The frame hook, without torch: other code runs in place of a frame, and nothing else changes."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import types
import weakref

import pytest
from flambeau_capture._native import (
    SKIP,
    Entry,
    FrameCache,
    GuardTree,
    active,
    compiled,
    disabled,
    set_active,
)

HERE = __file__


def swap_constant(code, old, new):
    """The same code with one constant changed: a stand-in for compiled code."""
    assert old in code.co_consts
    return code.replace(co_consts=tuple(new if c == old else c for c in code.co_consts))


def replacing(old, new, log=None):
    """A `convert` that swaps a constant in the codes that have it and skips all others."""

    def convert(code, func, locals, free, cache):
        if log is not None:
            log.append((code.co_name, dict(locals), dict(free)))
        if old not in code.co_consts:
            return SKIP
        return Entry(swap_constant(code, old, new), None)

    return FrameCache(convert)


def keep_all(code, func, locals, free, cache):
    """Every code is 'compiled' to itself, line for line."""
    return Entry(code.replace(), None)


def local_is(index, value):
    from flambeau_capture._native import ACCESS, CHECK

    return GuardTree(
        ((-1, ACCESS["ROOT"], None), (0, ACCESS["LOCAL"], index)),
        ((1, CHECK["SAME"], value),),
        0,
        (),
        (),
    )


def test_replaced_code_runs():
    def f(x):
        return x + 1000

    log = []
    cache = replacing(1000, 2000, log)
    g = compiled(f, cache)
    assert g(1) == 2001
    assert g(2) == 2002
    assert f(1) == 1001  # outside nothing is replaced
    assert log == [("f", {"x": 1}, {})]
    assert cache.counters()["hits"] == 1
    assert cache.counters()["conversions"] == 1
    assert [e.hits for e in cache.entries(f.__code__)] == [1]


def test_every_way_to_pass_arguments():
    def f(a, /, b, c=3, *args, d, e=5, **kwargs):
        return (1000, a, b, c, args, d, e, kwargs)

    seen = []
    g = compiled(f, replacing(1000, 2000, seen))
    assert g(1, 2, d=4) == (2000, 1, 2, 3, (), 4, 5, {})
    assert g(1, 2, 30, 40, 50, d=4, e=6, z=7) == (2000, 1, 2, 30, (40, 50), 4, 6, {"z": 7})
    assert g(1, b=2, d=4, c=9) == (2000, 1, 2, 9, (), 4, 5, {})
    expected = {"a": 1, "b": 2, "c": 3, "args": (), "d": 4, "e": 5, "kwargs": {}}
    assert seen == [("f", expected, {})]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'd'"):
        g(1, 2)


def test_arguments_that_are_cells():
    def f(x, *rest):
        def inner():
            return x, rest, 1000

        x = x + 1
        return inner()

    cache = replacing(1000, 2000)
    assert compiled(f, cache)(1, 2, 3) == (2, (2, 3), 2000)

    whole = FrameCache(keep_all)
    assert compiled(f, whole)(1, 2, 3) == (2, (2, 3), 1000)
    assert whole.counters()["conversions"] == 2


def make_closure(value):
    def f(x):
        return (x, value, 1000)

    def change(new):
        nonlocal value
        value = new

    return f, change


def test_closures_of_one_code_are_told_apart():
    log = []
    cache = replacing(1000, 2000, log)
    f, change = make_closure("one")
    g, _ = make_closure("two")
    assert f.__code__ is g.__code__
    assert compiled(f, cache)(1) == (1, "one", 2000)
    assert compiled(g, cache)(2) == (2, "two", 2000)
    change("three")
    assert compiled(f, cache)(3) == (3, "three", 2000)
    assert log == [("f", {"x": 1}, {"value": "one"})]


def test_closures_cross_in_recursion():
    def make(depth, log):
        def f():
            if depth:
                make(depth - 1, log)()
            log.append((depth, 1000))

        return f

    log = []
    cache = replacing(1000, 2000)
    compiled(make(5, log), cache)()
    assert log == [(depth, 2000) for depth in range(6)]


def test_other_globals():
    def f():
        return (name, 1000)  # noqa: F821

    f1 = types.FunctionType(f.__code__, {"name": "first"})
    f2 = types.FunctionType(f.__code__, {"name": "second"})
    cache = replacing(1000, 2000)
    for _ in range(3):
        assert compiled(f1, cache)() == ("first", 2000)
        assert compiled(f2, cache)() == ("second", 2000)


def test_super_and_class_cell():
    class Base:
        def m(self):
            return 1000

    class Derived(Base):
        def m(self):
            return (__class__, super().m(), 1000)

    cache = replacing(1000, 2000)
    assert compiled(Derived().m, cache)() == (Derived, 2000, 2000)


def test_nested_calls_and_recursion():
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    cache = FrameCache(keep_all)
    assert compiled(fact, cache)(20) == fact(20)
    assert cache.counters()["hits"] == 19
    assert cache.counters()["conversions"] == 1


def test_runaway_recursion_is_an_exception():
    def f(n):
        return f(n + 1)

    cache = FrameCache(keep_all)
    with pytest.raises(RecursionError):
        compiled(f, cache)(0)
    assert compiled(lambda: 5, cache)() == 5


def test_recursion_depth_is_that_of_plain_python():
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(4000)
        assert compiled(depth, FrameCache(keep_all))(3500) == 3500
        assert compiled(depth, FrameCache(lambda *_: SKIP))(3500) == 3500
    finally:
        sys.setrecursionlimit(limit)


def test_recursion_without_limit_ends_in_an_exception():
    def forever(n):
        return forever(n + 1)

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(10**6)
        for convert in (keep_all, lambda *_: SKIP):
            cache = FrameCache(convert)
            with pytest.raises(RecursionError):
                compiled(forever, cache)(0)
            assert cache.counters()["skipped_frames"] + cache.counters()["hits"] > 2000
    finally:
        sys.setrecursionlimit(limit)


def fails(x):
    y = x + 1000
    raise ValueError(y)  # line 3 of the function


def test_exceptions_and_their_lines():
    g = compiled(fails, replacing(1000, 2000))
    for _ in range(2):
        with pytest.raises(ValueError, match="2001") as info:
            g(1)
        frames = traceback.extract_tb(info.value.__traceback__)
        assert frames[-1].name == "fails"
        assert frames[-1].filename == HERE
        assert frames[-1].lineno == fails.__code__.co_firstlineno + 2
        assert len(frames) == 2
    assert active() is None


def test_getframe_sees_the_caller():
    def callee():
        frame = sys._getframe()
        return frame.f_code.co_name, frame.f_back.f_code.co_name, frame.f_lineno, 1000

    def caller():
        return callee(), 1000

    plain, replaced = caller(), compiled(caller, replacing(1000, 2000))()
    assert replaced == ((*plain[0][:3], 2000), 2000)
    assert plain[0][1] == "caller"


def test_generators_and_coroutines_run_as_they_are():
    def inner(x):
        return x + 1000

    def gen(n):
        for i in range(n):
            yield inner(i)

    async def coroutine():
        return inner(5)

    def drive():
        c = coroutine()
        try:
            c.send(None)
        except StopIteration as stop:
            return list(gen(3)), stop.value

    cache = replacing(1000, 2000)
    assert compiled(drive, cache)() == ([2000, 2001, 2002], 2005)
    assert cache.entries(gen.__code__) == []
    assert cache.is_skipped(gen.__code__)
    assert cache.is_skipped(coroutine.__code__)
    generator = compiled(gen, cache)(2)  # resumed where nothing is active
    assert list(generator) == [1000, 1001]


def test_class_bodies_and_exec_are_left_alone():
    def f():
        class C:
            value = 1000

        scope = {}
        exec("v = 1000", scope)
        return C.value, scope["v"]

    assert compiled(f, replacing(1000, 2000))() == (1000, 1000)


def test_methods_staticmethods_and_attributes():
    cache = replacing(1000, 2000)

    class C:
        def __init__(self):
            self.k = 7

        def m(self, x):
            return (self.k, x, 1000)

    C.m = compiled(C.m, cache)
    c = C()
    assert c.m(1) == (7, 1, 2000)
    bound = c.m
    assert bound(x=2) == (7, 2, 2000)
    assert C.m(c, 3) == (7, 3, 2000)
    assert C.m.cache is cache
    C.m.note = "kept"
    assert C.m.note == "kept"
    assert C.m.__dict__ == {"note": "kept"}


def test_active_is_restored_and_nests():
    outer, inner = FrameCache(keep_all), FrameCache(keep_all)

    def leaf():
        return active()

    def f():
        first = active()
        second = compiled(leaf, inner)()
        try:
            compiled(fails, inner)(1)
        except ValueError:
            third = active()
        fourth = disabled(leaf)()
        return first, second, third, fourth, active()

    assert compiled(f, outer)() == (outer, inner, outer, None, outer)
    assert active() is None
    assert inner.entries(f.__code__) == []
    assert len(inner.entries(leaf.__code__)) == 1


def test_set_active_low_level():
    cache = replacing(1000, 2000)

    def f():
        return 1000

    assert set_active(cache) is None
    try:
        assert f() == 2000
        assert active() is cache
    finally:
        assert set_active(None) is cache
    assert f() == 1000


def test_convert_runs_with_the_hook_off():
    inside = []

    def convert(code, func, locals, free, cache):
        inside.append(active())
        return SKIP

    def f():
        return 1000

    assert compiled(f, FrameCache(convert))() == 1000
    assert inside == [None]


def test_convert_answers():
    answers = []

    def convert(code, func, locals, free, cache):
        return answers.pop(0)

    def f(x):
        return x + 1000

    cache = FrameCache(convert)
    g = compiled(f, cache)
    answers[:] = [None, Entry(swap_constant(f.__code__, 1000, 2000), local_is(0, 1)), SKIP]
    assert g(1) == 1001  # None: this time as it is
    assert g(1) == 2001
    assert g(1) == 2001
    assert g(2) == 1002  # SKIP
    assert g(1) == 1001  # for good
    assert answers == []
    assert cache.is_skipped(f.__code__)
    assert cache.counters()["guard_failures"] == 1

    answers[:] = ["nonsense"]
    with pytest.raises(TypeError, match="Entry, SKIP or None, not str"):
        compiled(lambda: 1, cache)()


def test_convert_raises():
    def convert(code, func, locals, free, cache):
        raise LookupError("from convert")

    def f(x):
        return x

    cache = FrameCache(convert)
    marker = object()
    before = sys.getrefcount(marker)
    for _ in range(3):
        with pytest.raises(LookupError, match="from convert"):
            compiled(f, cache)(marker)
    assert sys.getrefcount(marker) == before
    assert active() is None
    cache.mode = "off"
    assert compiled(f, cache)(1) == 1


def test_entry_for_another_signature_is_refused():
    def f(x):
        return x

    def g(x, y):
        return y

    cache = FrameCache(lambda *_: Entry(g.__code__, None))
    with pytest.raises(ValueError, match="takes 2 arguments, not 1"):
        compiled(f, cache)(1)


def test_guards_choose_the_entry_and_the_limit_holds():
    def f(x):
        return (x, 1000)

    def convert(code, func, locals, free, cache):
        x = locals["x"]
        return Entry(swap_constant(code, 1000, 2000 + x), local_is(0, x))

    told = []
    cache = FrameCache(convert, limit=3)
    cache.on_limit = lambda code, func, locals, free: told.append((code, func, locals, free))
    g = compiled(f, cache)
    assert [g(i) for i in (1, 2, 3)] == [(1, 2001), (2, 2002), (3, 2003)]
    assert g(4) == (4, 1000)
    assert g(5) == (5, 1000)
    assert g(1) == (1, 2001)
    assert told == [(f.__code__, f, {"x": 4}, {})]
    assert len(cache.entries(f.__code__)) == 3
    assert cache.entries(f.__code__)[0].code.co_consts.count(2001) == 1  # the last hit first
    assert cache.counters()["limit_reached"] == 2


def test_modes():
    def f(x):
        return (x, 1000)

    def convert(code, func, locals, free, cache):
        return Entry(swap_constant(code, 1000, 2000), local_is(0, locals["x"]))

    cache = FrameCache(convert)
    g = compiled(f, cache)
    assert g(1) == (1, 2000)
    cache.mode = "run_only"
    assert g(1) == (1, 2000)
    assert g(2) == (2, 1000)
    assert len(cache.entries(f.__code__)) == 1
    cache.mode = "off"
    assert g(1) == (1, 1000)
    cache.mode = "default"
    assert g(2) == (2, 2000)
    with pytest.raises(ValueError, match="mode is"):
        cache.mode = "fast"


def test_stillborn_entries_are_dropped_with_a_warning():
    def f(x):
        return (x, 1000)

    def convert(code, func, locals, free, cache):
        return Entry(swap_constant(code, 1000, 2000), local_is(0, "never"))

    cache = FrameCache(convert)
    with pytest.warns(RuntimeWarning, match="do not hold on the frame they were made from"):
        assert compiled(f, cache)(1) == (1, 1000)
    assert compiled(f, cache)(1) == (1, 1000)
    assert cache.counters()["stillborn"] == 1
    assert cache.counters()["conversions"] == 1


def test_skip_by_file_and_by_code():
    def f():
        return 1000

    cache = replacing(1000, 2000)
    cache.skip_prefixes((HERE[:-3],))
    assert compiled(f, cache)() == 1000
    assert cache.is_skipped(f.__code__)
    cache.clear()
    cache.skip_prefixes(("/nowhere",))
    assert compiled(f, cache)() == 2000
    cache.skip(f.__code__)
    assert compiled(f, cache)() == 1000
    assert f.__code__ in cache.codes()


def test_the_cache_may_be_cleared_while_its_code_runs():
    def f(x):
        cache.clear()
        gc.collect()
        return (x, 1000)

    cache = replacing(1000, 2000)
    for i in range(5):
        assert compiled(f, cache)(i) == (i, 2000)


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


def test_deep_stacks_cross_chunks():
    # frames fill several chunks of the interpreter's data stack, so discarded frames begin chunks
    names = ", ".join(f"a{i}=0" for i in range(200))
    scope = {}
    exec(f"def deep(n, {names}):\n    return 0 if n == 0 else 1 + deep(n - 1)", scope)
    deep = scope["deep"]
    cache = FrameCache(keep_all)
    for _ in range(20):
        assert compiled(deep, cache)(300) == 300
    assert cache.counters()["hits"] > 5000


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


def test_tracing_sees_the_original():
    def f(x):
        return x + 1000

    cache = replacing(1000, 2000)
    g = compiled(f, cache)
    assert g(1) == 2001
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_name == "f":
            events.append((event, frame.f_code is f.__code__))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        result = g(1)
    finally:
        sys.settrace(before)
    if before is None:
        assert g(1) == 2001
    assert result == 1001
    assert events == [("call", True), ("line", True), ("return", True)]


def test_hook_is_gone_when_nothing_is_active():
    def leaf(x):
        return x

    def f():
        return leaf(1)

    cache = FrameCache(keep_all)
    compiled(f, cache)()
    met = len(cache.codes())
    f()
    assert len(cache.codes()) == met
    assert cache.counters()["hits"] == 0


def test_a_hook_that_was_there_before_still_sees_frames():
    internals = pytest.importorskip("_testinternalcapi")
    if not hasattr(internals, "set_eval_frame_record"):
        pytest.skip("this Python has no recording evaluation function")

    def skipped():
        return replaced() + 1

    def replaced():
        return 1000

    seen = []
    cache = replacing(1000, 2000)
    internals.set_eval_frame_record(seen)
    try:
        result = compiled(skipped, cache)()
        after = replaced()
    finally:
        internals.set_eval_frame_default()
    assert (result, after) == (2001, 1000)
    # each frame once: the skipped one, the code that ran in place of the other, the plain one
    assert [name for name in seen if name in ("skipped", "replaced")] == [
        "skipped",
        "replaced",
        "replaced",
    ]


def test_a_hook_installed_on_top_of_ours():
    internals = pytest.importorskip("_testinternalcapi")
    if not hasattr(internals, "set_eval_frame_record"):
        pytest.skip("this Python has no recording evaluation function")

    def inner():
        return 1000

    def outer():
        internals.set_eval_frame_record([])  # a hook that comes while ours is installed
        return inner()

    cache = replacing(1000, 2000)
    try:
        assert compiled(outer, cache)() == 1000  # the other hook passes nothing on to ours
        for _ in range(3):
            assert compiled(inner, cache)() == 2000
    finally:
        internals.set_eval_frame_default()
    assert inner() == 1000
    assert compiled(inner, cache)() == 2000


def test_arguments_of_the_constructors_are_checked():
    with pytest.raises(TypeError):
        FrameCache(5)
    with pytest.raises(ValueError, match="limit"):
        FrameCache(keep_all, limit=0)
    with pytest.raises(TypeError):
        compiled(len, None)
    with pytest.raises(TypeError):
        disabled(3)
    with pytest.raises(TypeError):
        set_active(3)
    with pytest.raises(TypeError):
        Entry(keep_all.__code__, "guards")
    with pytest.raises(ValueError, match="plain function"):
        Entry((i for i in ()).gi_code, None)
    with pytest.raises(TypeError):
        FrameCache(keep_all).skip_prefixes(["a"])
