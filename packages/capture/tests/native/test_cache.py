"""The frame cache: what convert may answer, entries and their limit, modes, skipping."""

from __future__ import annotations

import gc
import sys
import warnings

import pytest
from flambeau_capture._native import SKIP, Entry, FrameCache, active, compiled, disabled, set_active
from frames import fails, keep_all, local_is, replacing, swap_constant

HERE = __file__


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
    assert 0 < cache.counters()["timed_lookups"] and cache.counters()["guard_seconds"] > 0

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
    assert cache.counters()["conversions"] == 2


def test_an_entry_is_made_again_where_something_changed_in_between():
    def f(x):
        return (x, 1000)

    made = []

    def convert(code, func, locals, free, cache):
        made.append(locals["x"])
        held = locals["x"] if len(made) == 2 else "before another thread changed it"
        return Entry(swap_constant(code, 1000, 2000), local_is(0, held))

    cache = FrameCache(convert)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(f, cache)(1) == (1, 2000)
    assert len(made) == 2 and cache.counters()["stillborn"] == 0


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


def test_entries_that_end_while_they_are_listed():
    """The list is an object too: to make it may collect garbage, with which entries end."""

    def f(x):
        return x + 1

    def known(code, func, locals, free, cache):
        return Entry(code.replace(), local_is(0, locals["x"]))

    cache = FrameCache(known)
    call = compiled(f, cache)
    assert [call(x) for x in range(3)] == [1, 2, 3]
    known_first = cache.entries(f.__code__)
    left = [*known_first]
    assert len(left) == 3

    def ends(phase, info):
        while left:
            cache.remove(f.__code__, left.pop())

    threshold = gc.get_threshold()
    held = [[] for _ in range(200)]  # so that no list is at hand that was one before
    gc.callbacks.append(ends)
    gc.set_threshold(1)
    try:
        held.append(cache.entries(f.__code__))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(ends)
    # from 3.12 on the collector waits until the call has returned
    assert left == [] and held[-1] == ([] if sys.version_info < (3, 12) else known_first)
