"""Functions, decorators, generators: each habit is one graph with what eager gives (`GRAPHS`: those that break)."""

# ruff: noqa: E501 - odd code is what programs have
import functools
import operator

import pytest
import torch

HABITS = []


@HABITS.append
def closures(t):
    k = 3

    def a(x, y=2, *, z=k):
        return x * y + z

    def b():
        nonlocal k
        k += 1
        return k

    return a(t), a(t, 3, z=1), b(), b(), k


@HABITS.append
def lambdas_defaults(t):
    fs = [lambda x, i=i: x * i for i in range(3)]
    return [f(t) for f in fs], (lambda *a, **k: (a, k))(1, 2, x=3)


def deco(fn):
    @functools.wraps(fn)
    def inner(*a, **k):
        return fn(*a, **k) + 1

    return inner


@HABITS.append
def decorators(t):
    @deco
    def g(x):
        "doc"
        return x * 2

    return g(t), g.__name__, g.__doc__, g.__wrapped__(t)


@functools.cache
def cached(n):
    return n * 2


@HABITS.append
def lru(t):
    return t * cached(3) + cached(3), cached.__wrapped__(3)


class CP:
    def __init__(self):
        self.n = 0

    @functools.cached_property
    def v(self):
        self.n += 1
        return self.n * 10


@HABITS.append
def cachedprop(t):
    c = CP()
    return t * c.v, c.v, c.n, c.__dict__


@functools.singledispatch
def sd(x):
    return "obj"


@sd.register
def _(x: int):
    return "int"


@sd.register(list)
def _(x):
    return "list"


@HABITS.append
def singledispatch(t):
    return t + 1, sd(1), sd([]), sd("a"), sd(True)


class SDM:
    @functools.singledispatchmethod
    def m(self, x):
        return "o"

    @m.register
    def _(self, x: int):
        return "i"


@HABITS.append
def singledispatchmethod(t):
    s = SDM()
    return t + 1, s.m(1), s.m("")


@HABITS.append
def partials(t):
    p = functools.partial(torch.add, alpha=2)
    q = functools.partial(p, t)
    return p(t, t), q(t), p.func is torch.add, p.keywords, functools.reduce(operator.add, [t, t, t])


class PM:
    def base(self, a, b):
        return a + b

    inc = functools.partialmethod(base, 1)


@HABITS.append
def partialmethod(t):
    return t + PM().inc(4)


@HABITS.append
def recursion(t):
    def f(n):
        return 1 if n < 2 else n * f(n - 1)

    return t * f(5)


@HABITS.append
def gens(t):
    def g(n):
        x = 0
        while x < n:
            y = yield x
            x += 1 if y is None else y
        return "done"

    def outer():
        r = yield from g(3)
        yield r

    it = g(6)
    next(it)
    a = it.send(2)
    return t + a, list(outer()), list(it), [*g(2)], dict(enumerate(g(2)))


@HABITS.append
def genexpr_passed(t):
    def consume(it):
        return sum(it)

    return consume(t * i for i in range(3)), max(i for i in [1, 5, 2]), tuple(x for x in "ab")


@functools.total_ordering
class TO:
    def __init__(s, v):
        s.v = v

    def __eq__(s, o):
        return s.v == o.v

    def __lt__(s, o):
        return s.v < o.v


@HABITS.append
def total_order_use(t):
    return (
        t + 1,
        TO(1) <= TO(2),
        TO(3) > TO(2),
        max([TO(1), TO(5)], key=lambda o: o.v).v,
        sorted([TO(3), TO(1)])[0].v,
    )


@HABITS.append
def cmp_to_key(t):
    return t + 1, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


def tried(call):
    try:
        return call()
    except TypeError as error:
        return str(error)


@HABITS.append
def keys_of_a_comparison(t):
    key = functools.cmp_to_key(lambda a, b: a - b)
    orders = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
    found = [order(key(a), key(b)) for order in orders for a in (1, 2) for b in (1, 2)]
    refused = [tried(lambda order=order: order(key(1), 1)) for order in orders]
    shown = [(type(each).__name__, callable(each)) for each in (key, key(3))]
    return t + 1, found, refused, key(3).obj, key(obj=3).obj, max(key(1), key(4)).obj, shown


@HABITS.append
def makers_of_keys(t):
    makers = [functools.cmp_to_key(each) for each in (operator.sub, {}, lambda a, b: 0)]
    return t + 1, [(type(each).__name__, hasattr(each, "__code__")) for each in makers]


GRAPHS = {}


@pytest.mark.parametrize("fn", HABITS, ids=lambda fn: fn.__name__)
def test_habit(fn, one_graph):
    one_graph(fn, GRAPHS.get(fn.__name__, 1))
