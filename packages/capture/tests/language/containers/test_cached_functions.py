"""functools.lru_cache: what a cached function has made is the same object in every call."""

import collections
import dataclasses
import enum
import functools
import itertools

import pytest
import torch
from flambeau_capture import graph_break


def of(make):
    """A cached function, a cached method's owner, and both forgotten between worlds."""

    def method(self, n):
        return make(n)

    owner = type("Owner", (), {"method": functools.cache(method)})()
    return functools.lru_cache(make), owner


MAKES = {
    "tensor": lambda n: torch.zeros(n),
    "list": lambda n: [n],
    "pair": lambda n: (torch.zeros(n), n),
    "number": lambda n: n + 1,
}


def first(value):
    return value[0] if isinstance(value, tuple) else value


USES = {
    "read": lambda t, a, b: t * 1 + (len(a) if isinstance(a, list) else first(a)),
    "is the same": lambda t, a, b: (t * 1, a is b, a is not b),
    "written to": lambda t, a, b: (
        t + (first(a).add_(1) if isinstance(first(a), torch.Tensor) else 1)
    ),
    "written to by an operator": lambda t, a, b: t * 2 + _plus(a) + first(b)[:1],
    "appended to": lambda t, a, b: t + (a.append(1) or len(b) if isinstance(a, list) else 0),
    "returned": lambda t, a, b: (t * 2, a),
}


def _plus(value):
    value = first(value)
    if isinstance(value, torch.Tensor):
        value += 1
        return value
    return 1


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("through", ["function", "method"])
def test_it_is_kept_as_in_eager(capture, make, use, through):
    if use == "written to by an operator" and make not in ("tensor", "pair"):
        return
    worlds = []
    for wrap in (lambda fn: fn, capture):
        cached, owner = of(MAKES[make])
        call = cached if through == "function" else owner.method

        def fn(t, call=call):
            return USES[use](t, call(3), call(3))

        run, seen = wrap(fn), []
        for _ in range(3):
            seen.append(repr(run(torch.ones(3))))
        seen.append(repr(call(3)))
        worlds.append(seen)
    assert worlds[0] == worlds[1]


def test_what_is_only_read_is_in_one_graph(capture, backend):
    table = functools.lru_cache(lambda n, device: torch.arange(n, device=device) * 2.0)
    compiled = capture(lambda t: t + table(t.shape[0], t.device) + table(t.shape[0], t.device))
    for _ in range(2):
        assert compiled(torch.ones(3)).tolist() == [1.0, 5.0, 9.0]
    assert len(backend) == 1


class Slotted:
    __slots__ = ("items", "n")

    def __init__(self, n):
        self.n = n
        self.items = [n, n + 1]


@dataclasses.dataclass
class Record:
    n: int
    parts: list = dataclasses.field(default_factory=lambda: [1, 2])


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int


class Colour(enum.Enum):
    RED = 1


def adder(n):
    return lambda t: t + n


#: what a cached function may give, and how a program reads it
RESULTS = {
    "slots": (Slotted, lambda t, a: t * a.n + len(a.items)),
    "dataclass": (Record, lambda t, a: t * a.n + sum(a.parts)),
    "frozen dataclass": (Frozen, lambda t, a: t * a.n),
    "list": (lambda n: [n, [n]], lambda t, a: t * a[0] + a[1][0]),
    "dict": (lambda n: {"n": n, "at": [n]}, lambda t, a: t * a["n"] + a["at"][0]),
    "set": (lambda n: {n, 7}, lambda t, a: t * len(a)),
    "tuple of those": (
        lambda n: (Slotted(n), [n], {n: n}),
        lambda t, a: t * a[0].n + a[2][a[1][0]],
    ),
    "named tuple": (lambda n: Pair(n, [n]), lambda t, a: t * a.left + a.right[0]),
    "function": (adder, lambda t, a: a(t)),
    "partial": (lambda n: functools.partial(torch.add, other=n), lambda t, a: a(t)),
    "bytearray": (lambda n: bytearray(n), lambda t, a: t * len(a)),
    "tensor": (lambda n: torch.full((2,), float(n)), lambda t, a: t * a),
    "tensor in an object": (lambda n: Frozen(torch.full((2,), float(n))), lambda t, a: t * a.n),
    "module": (lambda n: torch.nn.Hardtanh(0.0, n), lambda t, a: a(t)),
    "number": (lambda n: n * 2, lambda t, a: t * a),
    "none": (lambda n: None, lambda t, a: t * 2 if a is None else -t),
    "text": (lambda n: "a" * n, lambda t, a: t * len(a)),
}

LITERALS = ("number", "none", "text")  # equal ones may be one object
#: of these a graph computes the first answer, which Python does not count
MADE_IN_GRAPHS = ("tensor", "tensor in an object")
Pair = collections.namedtuple("Pair", "left right")

#: how it is cached, and how it is called
CACHES = {
    "cache": lambda make: functools.cache(make),
    "bounded": lambda make: functools.lru_cache(make),
    "typed": lambda make: functools.lru_cache(maxsize=None, typed=True)(make),
    "typed and bounded": lambda make: functools.lru_cache(typed=True)(make),
    "of one": lambda make: functools.lru_cache(1)(make),
}
CALLS = {
    "by place": lambda cached: cached(3),
    "by name": lambda cached: cached(n=3),
    "twice": lambda cached: (cached(3), cached(3))[1],
    "of another number": lambda cached: (cached(3.0), cached(3))[1],
    "of two": lambda cached: (cached(2), cached(3))[1],
}


def _lives(wrap, result, cache, call, warm, clear, leave):
    """What a program sees of four calls: answers, whether they are one object, what is counted."""
    make, read = RESULTS[result]

    def made(n):
        return make(int(n))

    cached, kept, seen = CACHES[cache](made), [], []

    def fn(t):
        found = CALLS[call](cached)
        return (read(t, found), found) if leave else read(t, found)

    run = wrap(fn)
    if warm:
        CALLS[call](cached)
    for n in range(4):
        if clear and n == 2:
            cached.cache_clear()
        out = run(torch.full((2,), 5.0))
        if leave:
            out, found = out
            kept += [found] if result not in LITERALS else []
        counts = None if result in MADE_IN_GRAPHS else tuple(cached.cache_info())
        seen.append((out.tolist(), counts, cached(3) is cached(3)))
    return seen, [one is other for one in kept for other in [*kept, cached(3)]]


@pytest.mark.parametrize("leave", [False, True], ids=["read", "returned"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("result", RESULTS)
def test_what_is_kept_is_one_object(capture, result, cache, warm, leave):
    for call, clear in itertools.product(CALLS, [False, True]):
        args = (result, cache, call, warm, clear, leave)
        eager, ours = (_lives(wrap, *args) for wrap in (lambda fn: fn, capture))
        assert eager == ours, (call, clear)


class Owner:
    scale = 2

    def __init__(self, number):
        self.number = number

    @functools.lru_cache  # noqa: B019 - its objects are few
    def method(self, n):
        return [self.number, n]


def _method(t, cached):
    """Objects of one class share a cache."""
    return t * cached.method(2)[0]


def _fibonacci():
    @functools.cache
    def number(n):
        return [1] if n < 2 else [number(n - 1)[0] + number(n - 2)[0]]

    return number


def _stale():
    return functools.cache(lambda n: [n * Owner.scale])


def _raising():
    @functools.cache
    def refuse(n):
        raise ValueError(f"not {n}")

    return refuse


def _caught(t, cached):
    try:
        return cached(3)
    except ValueError as error:
        return t + len(str(error))


def _written(t, cached):
    cached(3).append(1)
    return t * len(cached(3))


def _after_one_in_place(t, cached):
    return t.add_(1) * cached(3)[0]


#: what makes a cached function or the owner of one, and a program that calls it
PROGRAMS = {
    "method": (lambda: Owner(4), _method),
    "recursion": (_fibonacci, lambda t, cached: t * cached(9)[0]),
    "of what changes": (_stale, lambda t, cached: t * cached(3)[0]),
    "raises": (_raising, _caught),
    "written to": (lambda: functools.cache(lambda n: [n]), _written),
    "after one in place": (_stale, _after_one_in_place),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_see_what_eager_keeps(capture, program):
    make, use = PROGRAMS[program]
    worlds = []
    for wrap in (lambda fn: fn, capture):
        Owner.scale, cached, seen = 2, make(), []
        run = wrap(lambda t, cached=cached: use(t, cached))
        for scale in (2, 5, 7):
            Owner.scale = scale
            seen.append(run(torch.ones(2)).tolist())
        worlds.append(seen)
    assert worlds[0] == worlds[1]


def test_one_cache_evicts_what_another_gave(capture):
    worlds = []
    for wrap in (lambda fn: fn, capture):
        inner = functools.lru_cache(1)(lambda n: [n])
        outer = functools.cache(lambda n, inner=inner: (inner(n), inner(n + 1)))

        def fn(t, inner=inner, outer=outer):
            return t * outer(2)[0][0] + inner(2)[0], outer(2)[1] is inner(3)

        run = wrap(fn)
        seen = [(out.tolist(), same) for out, same in (run(torch.ones(2)) for _ in range(3))]
        worlds.append((seen, inner.cache_info(), outer.cache_info()))
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("result", sorted({*RESULTS} - {"tensor in an object", "bytearray"}))
def test_the_first_call_is_one_graph(capture, backend, result):
    make, read = RESULTS[result]
    cached = functools.lru_cache(make)
    compiled = capture(lambda t: read(t, cached(3)), nopython=True)
    for _ in range(3):
        t = torch.full((2,), 5.0)
        assert compiled(t).tolist() == read(t, make(3)).tolist()
    assert len(backend) <= 1 + (result in MADE_IN_GRAPHS)


def test_open_sizes_are_read_in_the_graph(capture, backend):
    shapes = functools.lru_cache(lambda size, columns: [columns, size[0]])
    compiled = capture(lambda t: t.reshape(shapes(t.shape, t.shape[1])) * 2, nopython=True)
    for rows in (4, 5, 7, 8):
        t = torch.rand(rows, 3)
        assert torch.equal(compiled(t), t.reshape(3, rows) * 2)
    assert len(backend) == 2


NESTED = """
@functools.lru_cache(maxsize=None)
def inner(n):
    {0}
    return n * 2
@functools.lru_cache(maxsize=None)
def outer(n):
    a = inner(n)
    {1}
    return a + inner(n)
def f(x):
    y = x + outer(x.shape[0])
    {2}
    return y + inner(x.shape[0]){3}
"""
BREAKS_OR_NOT = ("pass", "graph_break()")
LAST_CALLS = ("", " + outer(x.shape[0])", " + inner(x.shape[0] + 1)")
NESTED_CALLS = [*itertools.product(BREAKS_OR_NOT, BREAKS_OR_NOT, BREAKS_OR_NOT, LAST_CALLS)]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("forms", NESTED_CALLS, ids=" ".join)
def test_calls_within_calls_of_open_sizes_are_counted_once(capture, forms):
    def counted(by):
        exec(NESTED.format(*forms), world := {"functools": functools, "graph_break": graph_break})
        call = by(world["f"])
        return [
            (
                call(torch.ones(size)).sum().item(),
                world["inner"].cache_info(),
                world["outer"].cache_info(),
            )
            for size in (3, 4, 5, 4, 6, 3)
        ]

    assert counted(capture) == counted(lambda fn: fn)
