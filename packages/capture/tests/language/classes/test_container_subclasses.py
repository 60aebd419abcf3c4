"""What methods of built-in containers make of subclasses, and which methods of theirs they call;
objects that a program has given another class. Generated: every base, every method."""

import collections
import enum
import itertools
import operator
import threading

import numpy as np
import pytest
import torch

BASES = {
    list: ([1, 2],), tuple: ((1, 2),), set: ({1, 2},), frozenset: ({1, 2},), dict: ({"a": 1},),
    collections.deque: ([1, 2],), collections.OrderedDict: ({"a": 1, "b": 2},),
    collections.defaultdict: (list, {"a": 1}),
}  # fmt: skip
OVERRIDDEN = "__init__ __getitem__ __setitem__ __contains__ __iter__ keys __len__".split()
USES = {
    "copy": lambda o, p: o.copy(),
    "or": lambda o, p: o | p,
    "or dict": lambda o, p: o | {"q": 1},
    "reflected or": lambda o, p: {"q": 1} | o,
    "or in place": lambda o, p: o.__ior__(p),
    "update": lambda o, p: o.update(p),
    "update by a dict": lambda o, p: o.update({"t": 1}),
    "setdefault": lambda o, p: (o.setdefault("a", 3), o.setdefault("n", 3)),
    "made again": lambda o, p: type(o)(o),
    "fromkeys": lambda o, p: type(o).fromkeys("ab", 1),
    "plain": lambda o, p: dict(o),
    "ordered": lambda o, p: collections.OrderedDict(o),
    "sorted": lambda o, p: sorted(o),
    "reversed": lambda o, p: [(one,) for one in reversed(o)],
    "factory": lambda o, p: o.default_factory,
}


def subclass(base, names, log):
    def logging(name):
        def method(self, *args):
            log.append((name, len(args)))
            return getattr(super(Made, self), name)(*args)

        return method

    frozen = base in (tuple, frozenset)
    body = {
        name: logging(name)
        for name in names
        if hasattr(base, name) and not (frozen and name == "__init__")
    }
    Made = type("Made", (base,), body)
    return Made


def attempt(use, o, p):
    try:
        return use(o, p)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("names", [(), OVERRIDDEN], ids=["plain", "overriding"])
@pytest.mark.parametrize("base", BASES)
def test_methods_of_a_built_in_base(base, names, capture):
    def outcome(run):
        log, answers = [], []
        made = subclass(base, names, log)

        def of_existing(x, o, p, use):
            return x + 1, attempt(use, o, p)

        def of_new(x, use):
            return x + 1, attempt(use, made(*BASES[base]), made(*BASES[base]))

        for use in USES.values():
            o, p = made(*BASES[base]), made(*BASES[base])
            for fn, args in ((of_existing, (o, p)), (of_new, ())):
                log.clear()
                found = run(fn)(torch.ones(2), *args, use)[1]
                answers.append((type(found).__name__, [*log], repr(found)))
        return answers

    assert outcome(capture) == outcome(lambda fn: fn)


MEMBERS = {
    "name": lambda o, E: o.name,
    "in": lambda o, E: o in E,
    "equal": lambda o, E: o == E.A,
    "by value": lambda o, E: E(2) is o,
    "text": lambda o, E: (str(o)[:2], repr(o)[:2]),
    "key": lambda o, E: {o: 1}[o],
    "truth": lambda o, E: bool(o),
    "kind": lambda o, E: (isinstance(o, E), type(o).__name__),
}


class Other:
    pass


def give_class(o):
    o.__class__ = Other


def give_dict(o):
    o.__dict__ = {"other": 1}


@pytest.mark.parametrize("kind", [enum.Enum, enum.Flag, enum.IntEnum])
@pytest.mark.filterwarnings("ignore:in 3.12")
def test_a_member_that_is_changed(kind, capture):
    def outcome(run):
        found = []
        for use in MEMBERS.values():
            for change, inside in ((give_class, True), (give_class, False), (give_dict, True)):
                E = kind("E", {"A": 1, "B": 2})

                def f(x, o, E, use=use, change=change if inside else id):
                    attempt(lambda o, p: change(o), o, None)
                    return x + 1, attempt(use, o, E)

                compiled = run(f)
                if not inside:
                    compiled(torch.ones(1), E.B, E)
                    attempt(lambda o, p: change(o), E.B, None)  # noqa: B023 - called here
                found.append(compiled(torch.ones(1), E.B, E)[1])
        return found

    assert outcome(capture) == outcome(lambda fn: fn)


def test_a_class_in_c_with_methods_of_the_program(capture):
    def outcome(run):
        log = []

        class Logged:
            def __get__(self, owner, kind):
                log.append("get")
                return 1

            def __set__(self, owner, value):
                log.append("set")

        class Local(threading.local):
            held = Logged()

            def __next__(self):
                log.append("next")
                return 5

        def f(x, o):
            o.held += 1
            return x + 1, next(o), next(o, 3)

        return run(f)(torch.ones(1), Local())[1:], log

    assert outcome(capture) == outcome(lambda fn: fn)


def test_a_metaclass_is_not_asked_for_special_methods(capture):
    class Meta(type):
        def __getattr__(cls, name):
            raise KeyError(name)

    class Key(metaclass=Meta):
        def __hash__(self):
            return 1

    def f(x, o):
        return x + 1, o in {1: 2}, {o: 1}[o]

    assert capture(f)(torch.ones(1), Key())[1:] == (False, 1)


def test_attributes_written_past_a_class_that_gains_a_property(capture):
    class Plain:
        def __init__(self):
            vars(self).update(a=1)

    def f(x):
        return x + 1, Plain()

    compiled = capture(f)
    assert vars(compiled(torch.ones(1))[1]) == {"a": 1}
    Plain.a = property(lambda self: 12)
    assert vars(compiled(torch.ones(1))[1]) == {"a": 1}


def test_an_operator_that_takes_no_symbols_keeps_static_sizes(capture):
    def f(x):
        return torch.combinations(x), torch.quantile(x, 0.5)

    compiled = capture(f, dynamic=True)
    for size in (3, 4, 5):
        x = torch.randn(size)
        for one, other in zip(compiled(x), f(x)):
            assert torch.equal(one, other)


@pytest.mark.parametrize("bounds", [(1,), (0, 1), (-1,), (None,), ("a",), (0, None), (1.5,)])
@pytest.mark.parametrize("kind", [list, tuple, collections.deque])
def test_where_an_index_is_looked_for(kind, bounds, capture):
    def f(x, o):
        return x + 1, attempt(lambda o, p: o.index(2, *bounds), o, None)

    o = kind([1, 2, 2])
    assert capture(f)(torch.ones(1), o)[1] == f(torch.ones(1), o)[1]


@pytest.mark.parametrize("base", [list, tuple, collections.deque], ids=lambda each: each.__name__)
def test_numpys_scalars_look_into_sequences(base, capture):
    """An operator between an instance and a scalar gives an array, or what the class says."""
    own = {name: lambda self, other: 5 for name in ("__add__", "__radd__")}
    kinds = [type("Plain", (base,), {}), type("Own", (base,), own)]
    half, whole = np.float32(2), np.int64(3)
    uses = ((half, operator.add), (half, operator.mod), (whole, operator.or_))
    for kind, (scalar, op) in itertools.product(kinds, uses):

        def fn(t, kind=kind, scalar=scalar, op=op):
            return t + 1, op(kind([1, 2]), scalar), op(scalar, kind([1, 2]))

        wanted, got = (each(torch.ones(2))[1:] for each in (fn, capture(fn)))
        for one, other in zip(got, wanted, strict=True):
            assert type(one) is type(other) and np.all(one == other), (kind, scalar, op)
