"""What the standard library makes inside of a function: caches, choices by class, copies by hooks,
context variables, classes by calls, modules by name, frames. One graph each, as in eager."""

import collections
import contextvars
import copy
import dataclasses
import datetime
import enum
import functools
import importlib
import operator
import string
import sys
import typing

import pytest
import torch
from flambeau_capture import graph_break


class Mark(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Reduced:
    def __init__(self, a):
        self.a = a

    def __reduce__(self):
        return Reduced, (self.a,), {"b": 1}


class ReducedEx:
    def __init__(self, a):
        self.a = a

    def __reduce_ex__(self, protocol):
        return ReducedEx, (self.a,)


class Stated:
    def __init__(self, a):
        self.a = a

    def __getstate__(self):
        return {"a": self.a * 2}


class Restored(Stated):
    def __setstate__(self, state):
        self.b = state


class Slots:
    __slots__ = ("__dict__", "a", "b")

    def __init__(self, a):
        self.a = a
        self.c = [1]


class MoreSlots(Slots):
    __slots__ = ("__q", "_p")

    def __init__(self, a):
        super().__init__(a)
        self._p, self.__q = 1, [2]

    def q(self):
        return self.__q


KEPT = MoreSlots(3)


class Wrapper:
    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn

    def __call__(self, *args):
        return self.fn(*args) + 1


def caches(t):
    @functools.lru_cache(maxsize=2)
    def f(k):
        return k * 2

    got = [f(1), f(2), f(1), f(3), f(2), f(k=2)]
    return t + sum(got), f.cache_info(), f.cache_parameters(), f.__wrapped__(4), f.__name__


def cache_of_itself(t):
    @functools.cache
    def fib(k):
        return k if k < 2 else fib(k - 1) + fib(k - 2)

    return t + fib(12), fib.cache_info(), fib.cache_clear(), fib.cache_info()


def cache_by_type(t):
    @functools.lru_cache(typed=True)
    def f(a, b=1):
        return t * a + b

    return f(1), f(1.0), f(a=1), f(1, b=1), f.cache_info()


def cache_of_methods(t):
    class A:
        @functools.lru_cache(None)  # noqa: B019
        def m(self, k):
            return k * 2

    a, b = A(), A()
    return t + a.m(1) + a.m(1) + b.m(1), A.m.cache_info()


def cache_of_nothing(t):
    @functools.lru_cache(0)
    def f(k):
        return t + k

    return f(1) + f(1), f.cache_info()


def cache_of_unhashable(t):
    @functools.lru_cache
    def f(k):
        return k

    try:
        f([])
    except TypeError as error:
        return t + 1, str(error), f.cache_info()


def chosen_by_class(t):
    @functools.singledispatch
    def f(a):
        "text"
        return "other"

    @f.register(int)
    @f.register(float)
    def _(a):
        return "number"

    @f.register
    def _(a: torch.Tensor):
        return "tensor"

    @f.register
    def _(a: list | tuple):
        return "sequence"

    try:
        f()
    except TypeError as error:
        said = str(error)
    got = [f(1), f(True), f(1.5), f(t), f([]), f(()), f("a"), f(None)]
    return t + 1, got, said, f.__name__, f.__doc__, len(f.registry), f.dispatch(int)(1)


def copies_by_hooks(t):
    made = copy.copy(Reduced(3)), copy.deepcopy(Reduced([1])), copy.copy(ReducedEx(t))
    stated, restored = copy.copy(Stated(t)), copy.deepcopy(Restored(2))
    return made[0].a + made[0].b, made[1].a, made[2].a, stated.a, restored.b


def copies_of_slots(t):
    made = MoreSlots(t)
    one, other, kept = copy.copy(made), copy.deepcopy(made), copy.copy(KEPT)
    shared = one.c is made.c, one.q() is made.q(), other.c is made.c, kept.q() is KEPT.q()
    return one.a + kept.a, shared, hasattr(one, "b"), other.q(), other._p, type(kept) is MoreSlots


def dates_as_numbers(t):
    day, hour = datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 4, 5)
    shown = f"{day:%Y-%m-%d}", day.strftime("%j %%"), f"{hour:%H:%M}", format(hour, "%S")
    return t + 1, shown


def enumerations_by_calls(t):
    E = enum.Enum("E", "A B")
    F = enum.IntEnum("F", {"P": 4, "Q": 5})
    G = enum.Flag("G", ["R", "W"])
    shown = [e.name for e in E], E.__module__ == __name__, repr(E.A), (G.R | G.W).value
    return t + E.A.value + F.Q, shown


def refused_pairs(t):
    class Refuses:
        def __init__(self, kind):
            self.kind = kind

        def __iter__(self):
            raise self.kind("own")

    said = []
    for make in (dict, collections.OrderedDict, {}.update):
        for given in (t, [t[0]], [1], [Refuses(TypeError)], [Refuses(KeyError)], [(1,)]):
            try:
                make(given)
            except Exception as error:
                said.append((type(error), str(error)))
    return t + 1, said


def context_variables(t):
    v = contextvars.ContextVar("v", default=2)
    w = contextvars.ContextVar("w")
    token = v.set(5)
    inside = v.get()
    try:
        w.get()
    except LookupError as error:
        raised = error.args == (w,)
    old = token.old_value is contextvars.Token.MISSING
    v.reset(token)
    return t + inside + v.get(), w.get(7), v.name, raised, old


def typed_classes(t):
    pair = typing.NamedTuple("Pair", [("a", int), ("b", int)])  # noqa: UP014
    table = typing.TypedDict("Table", {"a": int})  # noqa: UP013
    return pair(t, 2).a + table(a=t)["a"], pair.__module__, pair._fields, repr(pair(1, 2))


def made_dataclass(t):
    kind = dataclasses.make_dataclass("D", [("a", int), ("b", int, dataclasses.field(default=3))])
    return kind(t).a + kind(t).b, repr(kind(1))


def flags(t):
    both = Mark.A | Mark.B
    return t + both.value, [each.name for each in both], len(both), Mark.A in both


def formatted(t):
    parts = [*string.Formatter().parse("a{b!r:>3}c")]
    return t + 1, string.Formatter().format("{0} {a:>5} {b[1]}", 1, a=2, b=[3, 4]), parts


def modules_by_name(t):
    return t + importlib.import_module("math").floor(2.5)


def no_module(t):
    try:
        import not_there_at_all
    except ImportError as error:
        return t + 1, str(error), error.name, type(error).__name__
    return t, not_there_at_all


def test_a_module_that_is_nowhere_is_not_imported(one_graph, monkeypatch):
    finders = [each for each in sys.meta_path if "importlib" in getattr(each, "__module__", "")]
    monkeypatch.setattr(sys, "meta_path", finders)  # without those of tests
    one_graph(no_module)


def hints_of_length(t):
    class H:
        def __length_hint__(self):
            return 5

    return t + operator.length_hint([1, 2]) + operator.length_hint(H()) + operator.length_hint(3, 7)


def frames(t):
    def name():
        above = sys._getframe(1)
        return above.f_code.co_name, above.f_globals is globals(), sys._getframe().f_back is above

    return t + 1, name(), sys._getframe().f_code.co_name, sys._getframe().f_lineno > 0


def wrappers(t):
    @Wrapper
    def g(a):
        "text"
        return a * 2

    return g(t), g.__name__, g.__doc__, g.__wrapped__(2), functools.update_wrapper(g, len) is g


def globals_of_a_function(t):
    return t + 1, frames.__globals__ is globals(), frames.__globals__["Mark"] is Mark


HABITS = [
    each
    for each in list(globals().values())
    if getattr(each, "__code__", None)
    and each.__code__.co_varnames[:1] == ("t",)
    and each is not no_module
]


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.__name__)
def test_what_the_library_makes_inside(habit, one_graph):
    one_graph(habit)


def over_a_break(t):
    @functools.cache
    def f(a):
        return a

    t = t + f(1)
    graph_break()
    return t + f(1), f.cache_info(), type(f) is functools._lru_cache_wrapper


def leaves(t):
    @functools.lru_cache
    def f(a):
        return a

    f(1)
    return t + 1, f.cache_info(), type(f) is functools._lru_cache_wrapper, collections.deque([f])


@pytest.mark.parametrize("program", [over_a_break, leaves])
def test_a_cache_that_leaves_is_pythons(program, capture):
    expected = program(torch.ones(2))
    compiled = capture(program)
    for _ in range(2):
        found = compiled(torch.ones(2))
        assert torch.equal(found[0], expected[0]) and found[1:3] == expected[1:3]
