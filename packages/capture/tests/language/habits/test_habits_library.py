"""Built-ins and the standard library: each habit is one graph with what eager gives (`GRAPHS`: those that break)."""

# ruff: noqa: B008, E501 - odd code is what programs have
import copy
import inspect
import itertools
import math
import operator
import re
import types

import pytest
import torch
from habit_classes import DC

HABITS = []


@HABITS.append
def builtins1(t):
    return (
        t + 1,
        list(zip([1, 2], "ab", strict=True)),
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        list(filter(None, [0, 1])),
        list(enumerate("ab", 1)),
        sorted([3, 1], key=lambda v: -v),
        list(reversed([1, 2])),
        any([0, 1]),
        all([]),
        sum([1, 2], start=3),
        min(3, 1),
        max([1, 5], key=lambda v: -v),
        max([], default=4),
        abs(-3),
        round(2.567, 2),
        divmod(7, 3),
        pow(2, 5, 7),
        bin(5),
        hex(255),
        oct(8),
        int("12"),
        int("ff", 16),
        float("1.5"),
        bool([]),
        complex(1, 2).imag,
        int is int,
        isinstance(True, int),
        callable(len),
        iter([1]).__next__(),
        next(iter([]), None),
        t.shape,
        len("abc"),
        hash("a") == hash("a"),
        id(torch) == id(torch),
        vars(types.SimpleNamespace) is not None,
        issubclass(bool, int),
        list(iter(lambda it=iter([1, 2, 0]): next(it), 0)),
    )


@HABITS.append
def itertools_(t):
    return (
        t + 1,
        list(itertools.chain([1], [2, 3])),
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.islice(itertools.count(), 2, 8, 2)),
        list(itertools.product([1, 2], repeat=2)),
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.accumulate([1, 2, 3])),
        [(k, list(g)) for k, g in itertools.groupby("aab")],
        list(itertools.repeat(1, 2)),
        list(itertools.starmap(operator.mul, [(1, 2)])),
        list(itertools.takewhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(itertools.compress("abc", [1, 0, 1])),
        list(itertools.filterfalse(None, [0, 1])),
        list(itertools.pairwise([1, 2, 3])),
        [list(x) for x in itertools.tee([1, 2])],
        list(itertools.combinations_with_replacement([1, 2], 2)),
        [next(c) for c in [itertools.cycle([1, 2])] * 3],
    )


@HABITS.append
def operator_(t):
    return (
        operator.add(t, 1),
        operator.itemgetter(1)([1, 2]),
        operator.attrgetter("shape")(t),
        operator.methodcaller("upper")("a"),
        operator.itemgetter(0, 1)([1, 2]),
        operator.mul(2, 3),
        operator.not_(1),
        operator.truth([]),
        operator.contains([1], 1),
        operator.getitem([1], 0),
        operator.index(3),
        operator.is_(None, None),
        operator.concat([1], [2]),
        operator.attrgetter("__class__.__name__")(3),
        operator.iadd(t * 1, 1),
    )


@HABITS.append
def math_(t):
    return (
        t * math.pi,
        math.sqrt(4),
        math.ceil(1.2),
        math.floor(-1.2),
        math.log(8, 2),
        math.gcd(4, 6),
        math.prod([2, 3]),
        math.inf > 1,
        math.isnan(math.nan),
        math.isclose(1, 1.0),
        math.factorial(4),
        math.comb(4, 2),
        math.log2(8),
        math.exp(0),
        math.fsum([0.1] * 10),
        math.hypot(3, 4),
        math.trunc(2.5),
        math.copysign(1, -2),
        math.isqrt(10),
        math.sin(0.0),
        math.tanh(0.5),
        math.modf(2.5),
        math.frexp(8.0),
        math.erf(0.5),
        math.dist([0, 0], [3, 4]),
        math.lcm(4, 6),
        math.radians(180.0),
        math.atan2(1, 1),
        math.isfinite(2.0),
    )


@HABITS.append
def copies(t):
    a = [1, [2, t]]
    b = copy.copy(a)
    c = copy.deepcopy(a)
    d = copy.deepcopy({"x": [1]})
    o = copy.copy(DC(1))
    p = copy.deepcopy(DC(2, [3]))
    return b[1] is a[1], c[1] is a[1], c[1][1] + 1, d, o.a, p.b


@HABITS.append
def inspects(t):
    def f(a, b=2, *c, d, **e):
        pass

    s = inspect.signature(f)
    return (
        t + 1,
        list(s.parameters),
        s.parameters["b"].default,
        "a" in s.parameters,
        inspect.isfunction(f),
        inspect.isclass(DC),
        s.parameters["a"].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )


@HABITS.append
def res(t):
    return (
        t + 1,
        re.match(r"(\d+)-(\w)", "12-a").groups(),
        re.sub("a", "b", "aa"),
        bool(re.search("x", "y")),
        re.compile("a.").findall("abac"),
        re.split(",", "a,b"),
    )


GRAPHS: dict[str, int] = {}


@pytest.mark.parametrize("fn", HABITS, ids=lambda fn: fn.__name__)
def test_habit(fn, one_graph):
    one_graph(fn, GRAPHS.get(fn.__name__, 1))
