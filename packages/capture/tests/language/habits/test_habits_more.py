"""Less common habits: each is one graph with what eager gives (`GRAPHS`: those that are not)."""

import ast
import bisect
import collections
import copy
import dataclasses
import functools
import heapq
import itertools
import math
import operator
import re
import struct
import types

import pytest
import torch

HABITS = []
GRAPHS = {"ended_aloud": 0, "ended_aloud_in_a_callee": 0}
SEEN = []
SPACE = types.SimpleNamespace(k=3, inner=types.SimpleNamespace(name="n"))
PATTERN = re.compile(r"(\d+)-(\w+)")


class Text(str):
    def shout(self):
        return self.upper() + "!"


class Whole(int):
    def double(self):
        return self * 2


class Half(float):
    pass


class Row(tuple):
    def total(self):
        return sum(self)


class Versioned(tuple):
    def __new__(cls, *parts):
        made = super().__new__(cls, parts)
        made.count = len(parts)
        return made


class Loud:
    def __del__(self):
        SEEN.append("end")


class Copied:
    def __init__(self, value):
        self.value = value

    def __copy__(self):
        return Copied(self.value)

    def __deepcopy__(self, memo):
        return Copied([*copy.deepcopy(self.value, memo), 9])


class Number:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __divmod__(self, other):
        return "divmod", other

    def __round__(self, digits=None):
        return "round", digits

    def __floor__(self):
        return "floor"

    def __ceil__(self):
        return "ceil"

    def __trunc__(self):
        return "trunc"

    def __float__(self):
        return float(self.value)


class Registry(type):
    made = {}

    def __call__(cls, *args):
        if cls not in cls.made:
            cls.made[cls] = super().__call__(*args)
        return cls.made[cls]


class Single(metaclass=Registry):
    def __init__(self):
        self.k = 5


@functools.cache
def cached_list(x):
    return [x]


@HABITS.append
def namespaces(t):
    made = types.SimpleNamespace(a=t, b=2)
    made.c = 3
    del made.b
    same = types.SimpleNamespace(x=1) == types.SimpleNamespace(x=1)
    other = types.SimpleNamespace(x=1) != types.SimpleNamespace(x=2)
    return (
        made.a * made.c + SPACE.k,
        same,
        other,
        vars(made).keys() == {"a", "c"},
        repr(SPACE.inner),
        hasattr(SPACE, "no"),
    )


@HABITS.append
def a_namespace_that_leaves(t):
    return vars(types.SimpleNamespace(a=t + 1, b=[2]))


@HABITS.append
def texts(t):
    a = Text("ab")
    return (
        t + len(a.shout()),
        a == "ab",
        a + "c",
        f"{a}|{a:>4}",
        a[0],
        "b" in a,
        {"ab": 1}[a],
        isinstance(a, str),
    )


@HABITS.append
def wholes(t):
    a = Whole(3)
    return (
        t + a.double(),
        a + 1,
        1 + a,
        a == 3,
        [0, 1, 2, 3][a],
        Whole("7") + 0,
        list(range(a)),
        a > 2,
        t.reshape(a, 1),
    )


@HABITS.append
def halves(t):
    return t * Half(0.5), Half(2) > 1, -Half(1.5)


@HABITS.append
def rows(t):
    a, b = Row((1, 2)), Versioned(1, 2, 3)
    return (
        t + a.total(),
        a[0],
        len(a),
        (*a, 3),
        a + (3,),
        a == (1, 2),
        b.count,
        list(b),
        [x + t for x in a],
    )


@HABITS.append
def heaps(t):
    heap = [5, 3, 8, 1, 9, 2]
    heapq.heapify(heap)
    heapq.heappush(heap, 4)
    found = [heapq.heappop(heap), heapq.heapreplace(heap, 7), heapq.heappushpop(heap, 0)]
    return (
        t + 1,
        heap,
        found,
        heapq.nlargest(2, heap),
        heapq.nsmallest(2, heap),
        list(heapq.merge([1, 3], [2])),
    )


@HABITS.append
def sorted_lists(t):
    a = [1, 3, 5]
    bisect.insort(a, 4)
    bisect.insort_left(a, 3, key=lambda v: v)
    return t + bisect.bisect(a, 3), a


@HABITS.append
def iterators_of_iterators(t):
    first, second = itertools.tee(iter([1, 2, 3]))
    around = itertools.cycle("ab")
    return t + next(first), list(second), list(first), [next(around) for _ in range(5)]


@HABITS.append
def operators(t):
    try:
        operator.indexOf([1], 9)
    except ValueError as error:
        text = str(error)
    return (
        operator.concat([1], [2]),
        operator.countOf([1, 1, 2], 1),
        operator.indexOf([1, 2], 2),
        text,
        t + 1,
    )


@HABITS.append
def protocols_of_numbers(t):
    n = Number(2)
    return (
        divmod(n, 5),
        round(n),
        round(n, 1),
        math.floor(n),
        math.ceil(n),
        math.trunc(n),
        math.sqrt(Number(4)),
        [7, 8, 9][n],
        "abc"[n],
        [1] * n,
        t + int(n),
    )


@HABITS.append
def operators_that_nobody_has(t):
    found = []
    for run in (
        lambda: Number(1) + "a",
        lambda: Number(1) < 2,
        lambda: 2 ** Number(1),
        lambda: -Number(1) if False else Single() - 1,
    ):
        try:
            run()
        except TypeError as error:
            found.append(str(error))
    return t + 1, found


@HABITS.append
def copies(t):
    a = Copied([1, [2]])
    b = copy.deepcopy({"x": a, "y": a})
    return b["x"].value, b["x"] is b["y"], copy.copy(a).value is a.value, t + 1


@HABITS.append
def contexts_of_exceptions(t):
    found = []
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b")  # noqa: B904
    except ValueError as error:
        found += [type(error.__context__).__name__, error.__suppress_context__, error.__cause__]
        found.append(error.__traceback__ is not None)
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as error:
        found += [type(error.__context__).__name__, error.__suppress_context__]
        error.add_note("n")
        found.append(error.__notes__)
    group = ExceptionGroup("g", [ValueError(1), TypeError(2)])
    return t + len(group.exceptions), group.message, found, ValueError().__traceback__


@HABITS.append
def annotations(t):
    def inner(a: int, *b: str, c: float = 1.0) -> "list":
        return a

    return inner.__annotations__, t + 1


@HABITS.append
def attributes_of_functions(t):
    def inner():
        return 1

    inner.k = 3
    return t + inner.k, inner.__dict__


@HABITS.append
def found_by_patterns(t):
    return (
        [m.start() for m in re.finditer("a", "aba")],
        [m.group(1) for m in PATTERN.finditer("1-a 2-b")],
        t + 1,
    )


@HABITS.append
def tuples_with_names(t):
    made = collections.namedtuple("made", "a b", defaults=[4])
    one = made(t)
    return one.a + one.b, one._asdict()["b"], made._fields, tuple(one._replace(b=5))[1]


@HABITS.append
def bytes_and_literals(t):
    packed = struct.pack("<ih", 5, 6)
    return struct.unpack("<ih", packed), struct.calcsize("ii"), ast.literal_eval("[1, (2,)]"), t + 1


@HABITS.append
def singletons(t):
    return t + Single().k, Single() is Single()


@HABITS.append
def one_answer_of_a_cache(t):
    first = cached_list(3)
    first.append(4)
    second = cached_list(3)
    first.remove(4)
    return t + 1, first is second


@HABITS.append
def ended_aloud(t):
    SEEN.clear()
    one = Loud()
    result = t + 1
    del one
    return result, list(SEEN)


@HABITS.append
def ended_aloud_in_a_callee(t):
    SEEN.clear()
    (lambda: Loud() and None)()
    return t + 1, list(SEEN)


@HABITS.append
def enums_of_flags(t):
    flag = re.IGNORECASE
    return t + 1, (~flag & re.MULTILINE) == re.MULTILINE, flag | re.DOTALL == re.I | re.S


@HABITS.append
def rounding_a_tensor(t):
    try:
        return round(t), t
    except TypeError:
        return t + 1


@dataclasses.dataclass
class Record:
    x: int


@HABITS.append
def lists_of_numbers(t):
    return torch.tensor([t[0], t[1]]), torch.tensor([r.x for r in (Record(1), Record(2))])


@pytest.mark.parametrize("habit", HABITS, ids=lambda fn: fn.__name__)
def test_habit(one_graph, habit):
    one_graph(habit, GRAPHS.get(habit.__name__, 1))


def test_appending_reads_nothing_of_a_list(capture, backend):
    log = []

    def fn(t):
        log.append(t.shape[0])
        log.extend([1, 2])
        return t + 1

    compiled = capture(fn)
    for _ in range(5):
        compiled(torch.ones(3))
    assert log == [3, 1, 2] * 5 and len(backend) == 1


def test_what_is_appended_is_seen_by_who_reads(capture, backend):
    log = [7]

    def fn(t):
        log.append(t)
        return t + len(log) + log[0]

    compiled = capture(fn)
    assert compiled(torch.zeros(1)).item() == 9
    assert compiled(torch.zeros(1)).item() == 10
    assert len(log) == 3 and len(backend) == 2


def test_layers_dropped_with_no_probability_are_not_branches(capture, backend):
    def fn(t, p):
        if torch.rand([]) < p:
            return t
        if not torch.rand([]) >= 0:
            return t
        return t + 1

    state = torch.random.get_rng_state()
    ours = capture(fn)(torch.ones(3), 0.0)
    after = torch.rand(3)
    torch.random.set_rng_state(state)
    theirs = fn(torch.ones(3), 0.0)
    assert torch.equal(ours, theirs) and torch.equal(torch.rand(3), after)
    assert len(backend) == 1
    capture(fn)(torch.ones(3), 0.5)
    assert len(backend) >= 2  # a branch, whichever way it goes


def test_a_cell_that_is_empty_and_then_is_not(capture):
    def make(fill):
        def fn(t):
            try:
                return t + later
            except NameError:
                return t - 1

        if fill:
            later = 5
        return fn

    compiled = capture(lambda f, t: f(t))
    assert compiled(make(False), torch.zeros(1)).item() == -1
    assert compiled(make(True), torch.zeros(1)).item() == 5
    assert compiled(make(False), torch.zeros(1)).item() == -1
