"""Functions of the library that are written in C, for which Python that does the same is captured:
what they refuse when they are called, in their own words, and what leaves the frame before it is
used. Generated: each of them, with arguments of every kind in each place.
"""

import abc
import collections
import enum
import itertools
import operator
import random
import re

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.values.functions.call_rules import RULES

MODULES = ("itertools", "_heapq", "_bisect", "operator", "_operator")
FUNCTIONS = [
    fn for fn, rule in RULES.items()
    if rule.python is not None and getattr(fn, "__module__", "") in MODULES
    and hasattr(fn, "__name__") and fn not in (itertools.cycle, itertools.tee, operator.concat)
]  # fmt: skip
KINDS = {
    "list": "[3, 1, 2]", "empty": "[]", "number": "2", "negative": "-1", "text": "'ab'",
    "float": "1.5", "none": "None", "set": "{1}", "function": "len", "own": "(lambda *a: 1)",
    "deque": "collections.deque([1])", "pattern": "re.compile('a')", "range": "range(3)",
    "iterator": "iter([1, 2])", "bytes": "bytearray(b'ab')", "slice": "slice(None, None, -1)",
    "dict": "{'a': 1}", "class": "dict", "own class": "Slotted", "iterable class": "Counted",
    "enumeration": "Color", "member": "Color.RED", "abstract": "Abstract", "tensor": "t",
    "index": "Index()", "no index": "NoIndex()", "sequence": "Three()", "iterable": "Iterable()",
    "not iterable": "NotIterable()", "wrongly iterable": "WronglyIterable()", "alias": "list[int]",
    "large": "10**30", "true": "True", "tuple": "(3, 1)", "generator": "(i for i in (1, 2))",
}  # fmt: skip
GIVEN = [(one,) for one in KINDS.values()]
GIVEN += list(itertools.product(KINDS.values(), repeat=2))
NAMED = ["lo", "hi", "key", "func", "initial", "repeat", "fillvalue", "r"]
#: which of two errors is raised first, where one of them is of a method of the program's
METHODS = {"NoIndex()", "WronglyIterable()"}
GIVEN = [given for given in GIVEN if not METHODS & {*given} and "t" not in given[1:]]
GIVEN += [("WronglyIterable()",)]
GIVEN += [("[3, 1, 2]", last) for last in ("WronglyIterable()", "NoIndex()", "t")]
#: what the generated programs name
MODULES = (collections, re)


class Slotted:
    __slots__ = ()


class Counting(type):
    def __iter__(cls):
        return iter([2, 1])

    def __len__(cls):
        return 2

    def __getitem__(cls, place):
        return [2, 1][place]


class Counted(metaclass=Counting):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Abstract(abc.ABC):
    @abc.abstractmethod
    def m(self):
        pass


class Index:
    def __index__(self):
        return 1


class NoIndex:
    def __index__(self):
        return "a"


class Three:
    def __len__(self):
        return 3

    def __getitem__(self, place):
        if place > 2:
            raise IndexError(place)
        return place


class Iterable:
    def __iter__(self):
        return iter([2, 1])


class NotIterable:
    __iter__ = None


class WronglyIterable:
    def __iter__(self):
        return 5


def program(fn, chunk):
    lines = ["def f(t):\n    R = [t + 1]"]
    for given in chunk:
        lines.append(f"    try:\n        a = {given[0]}")
        lines.append(f"        R.append((fn({', '.join(['a', *given[1:]])}), a))")
        lines.append("    except Exception as e:\n        R.append((type(e), str(e)))")
    lines.append("    return R")
    space = {**globals(), "fn": fn}
    exec("\n".join(lines), space)
    return space["f"]


def shown(value):
    """Items of what is iterated, the class of what is not."""
    kind = type(value).__name__
    if isinstance(value, tuple):
        return kind, [shown(item) for item in value]
    if isinstance(value, list | int | str | set | type):
        return kind, repr(value)
    if hasattr(value, "__next__"):
        try:
            return kind, [shown(item) for item in itertools.islice(value, 4)]
        except Exception as error:
            return kind, type(error), str(error)
    return kind


@pytest.mark.sweep(4)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_refused_and_leaving(fn):
    few = GIVEN[:: 1 + len(GIVEN) // 60] + GIVEN[-4:]
    if fn is itertools.islice:  # it says something else than the error of the method
        few = [given for given in few if given[-1] not in ("NoIndex()", "t")]
    if "bisect" in fn.__name__ or "insort" in fn.__name__:  # of a set it depends on what it holds
        few = [given for given in few if given[0] != "{1}"]
    for start in range(0, len(few), 20):
        f = program(fn, few[start : start + 20])
        expected = f(torch.ones(2))[1:]
        ours = optimize("eager", raise_internal_errors=True)(f)(torch.ones(2))[1:]
        for given, want, got in zip(few[start:], expected, ours):
            assert shown(got) == shown(want), given


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_drawn_arguments(fn):
    """More of them than two, and by name."""
    draw = random.Random(7)
    names = [name for name in NAMED if name in (fn.__text_signature__ or "")]
    kinds, chosen = list(KINDS.values()), []
    while len(chosen) < 36:
        given = draw.choices(kinds, k=draw.choice([2, 3, 4]))
        if names and draw.random() < 0.5:
            given[-1] = f"{draw.choice(names)}={given[-1]}"
        unordered = given[0] == "{1}" and "_" in fn.__name__  # it depends on what it holds
        if not (METHODS | {"t"}) & {*given} and not unordered:
            chosen.append(given)
    for start in range(0, len(chosen), 12):
        f = program(fn, chosen[start : start + 12])
        expected = f(torch.ones(2))[1:]
        ours = optimize("eager", raise_internal_errors=True)(f)(torch.ones(2))[1:]
        for given, want, got in zip(chosen[start:], expected, ours):
            assert shown(got) == shown(want), given


MAKERS = [
    "islice(xs, 4)", "product(xs, xs)", "product(xs, repeat=2)", "accumulate(xs)",
    "starmap(max, zip(xs, xs))", "takewhile(bool, xs)", "dropwhile(bool, xs)",
    "zip_longest(xs, ys)", "pairwise(xs)", "combinations(xs, 2)", "permutations(xs)",
    "permutations(xs, 2)", "compress(xs, ys)", "filterfalse(None, xs)", "groupby(xs)",
    "combinations_with_replacement(xs, 2)", "combinations(xs, r=Index())", "cycle(xs)",
]  # fmt: skip
TAKING = """
def f(t):
    log = []
    class Noting:
        def __iter__(self):
            log.append("begun")
            for i in (1, 2, 0, 3):
                log.append(i)
                yield i
    class Given:
        def __iter__(self):
            log.append("iterated")
            return iter((1, 2, 0, 3))
    ys = [1, 0]
    xs = {given}
    made = itertools.{made}
    log.append("made")
    if isinstance(xs, list):
        xs.append(5)
        ys.append(6)
    t = t + 1
    if {leaves}:
        return t, log, made
    return t, log, [repr(item) for item in itertools.islice(made, 5) if "0x" not in repr(item)]
"""


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("given", ["[1, 2, 0, 3]", "Noting()", "Given()", "iter((1, 2, 0, 3))"])
@pytest.mark.parametrize("made", MAKERS)
def test_when_an_argument_is_taken(made, given, leaves):
    exec(TAKING.format(given=given, made=made, leaves=leaves), globals(), space := {})
    results = []
    for f in (space["f"], optimize("eager")(space["f"])):
        _, log, items = f(torch.ones(2))
        before = [*log]
        items = [repr(item) for item in itertools.islice(items, 6) if "0x" not in repr(item)]
        results.append((before, items, log))
    assert results[1] == results[0]
