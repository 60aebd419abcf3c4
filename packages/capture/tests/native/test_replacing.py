"""Other code runs in place of a frame: arguments, cells, closures, globals, methods."""

from __future__ import annotations

import types

import pytest
from flambeau_capture._native import FrameCache, compiled
from frames import keep_all, replacing


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
