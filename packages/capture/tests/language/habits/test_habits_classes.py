"""Classes, descriptors, metaclasses, dataclasses, enums: each habit is one graph with what eager gives."""

# ruff: noqa: B018, E501, UP007, UP045 - odd code is what programs have
import abc
import collections
import dataclasses
import numbers
import typing
from typing import (
    Any,
    Generic,
    NamedTuple,
    Optional,
    Protocol,
    TypeVar,
    Union,
    get_origin,
    runtime_checkable,
)

import pytest
from habit_classes import DC, FDC, FL, IE, ODC, SDC, SE, Base, Color

HABITS = []


@HABITS.append
def cls_del(t):
    b = Base(1)
    del b.p
    try:
        b.p
    except AttributeError as e:
        r = str(e)
    with b as q:
        pass
    return t + 1, r, q.a


class Desc:
    def __set_name__(self, o, n):
        self.n = "_" + n

    def __get__(self, i, o):
        return self if i is None else i.__dict__.get(self.n, 0)

    def __set__(self, i, v):
        i.__dict__[self.n] = v + 1


class HasDesc:
    d = Desc()


@HABITS.append
def descriptors(t):
    o = HasDesc()
    o.d = 4
    return t + o.d, o.__dict__, isinstance(HasDesc.d, Desc)


class SetA:
    def __setattr__(self, n, v):
        object.__setattr__(self, n, v * 2)

    def __getattribute__(self, n):
        return object.__getattribute__(self, n)

    def __delattr__(self, n):
        super().__delattr__(n)


@HABITS.append
def setattr_hook(t):
    o = SetA()
    o.x = 2
    o.y = 3
    r = o.x, o.y, getattr(o, "z", None)
    del o.x
    delattr(o, "y")
    return t + 1, r, vars(o)


class Meta(type):
    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.tag = cls.__name__
        return o

    @property
    def mp(cls):
        return "mp"

    def __iter__(cls):
        return iter([1, 2])

    def __len__(cls):
        return 2

    def __getitem__(cls, k):
        return k

    def __contains__(cls, k):
        return k == 1

    def meth(cls):
        return cls.__name__


class WithMeta(metaclass=Meta):
    def __init__(self, v):
        self.v = v


@HABITS.append
def metaclasses(t):
    return t + WithMeta(2).v, WithMeta(3).tag, WithMeta.mp, WithMeta.meth()


@HABITS.append
def metaclass_iter(t):
    return t + 1, list(WithMeta), len(WithMeta), WithMeta[3], 1 in WithMeta


class Abs(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
    @property
    @abc.abstractmethod
    def g(self): ...


class Conc(Abs):
    def f(self):
        return 1

    @property
    def g(self):
        return 2


@HABITS.append
def abcs(t):
    try:
        Abs()
        r = "no"
    except TypeError:
        r = "TypeError"
    c = Conc()
    return (
        t + c.f() + c.g,
        r,
        isinstance(c, Abs),
        issubclass(Conc, Abs),
        isinstance([], collections.abc.Sequence),
        isinstance(3, numbers.Number),
        isinstance({}, collections.abc.Mapping),
    )


@HABITS.append
def dclasses(t):
    d = DC(3, c=t)
    d.b.append(1)
    f = FDC(2)
    try:
        f.a = 3
        r = 0
    except dataclasses.FrozenInstanceError as e:
        r = str(e)
    s = SDC(1, t)
    s.a = 5
    return (
        d.c + d.s,
        d.b,
        f,
        r,
        s.a,
        s.t,
        ODC(1) < ODC(2),
        DC(1) == DC(1),
        hash(FDC(1)) == hash(FDC(1)),
        repr(f),
        dataclasses.replace(f, a=9),
        dataclasses.asdict(FDC(3)),
        dataclasses.astuple(ODC(1, 2)),
        [x.name for x in dataclasses.fields(DC)],
    )


@HABITS.append
def enums(t):
    return (
        t + IE.B,
        Color.R is Color["R"],
        Color(2),
        Color.R.low,
        list(Color),
        IE.A < IE.B,
        SE.X == "x",
        f"{SE.X.value}",
        Color.R in Color,
        {Color.R: 1}[Color.R],
        FL.A | FL.B,
        FL.A in (FL.A | FL.B),
        len(Color),
        Color.__members__["G"],
        isinstance(Color.R, Color),
        hash(Color.R) == hash(Color.R),
    )


NT = collections.namedtuple("NT", "a b")


class NT2(NamedTuple):
    x: Any
    y: int = 2

    def s(self):
        return self.y + 1


@HABITS.append
def ntuples(t):
    n = NT(t, 1)
    m = NT2(t)
    _a, _b = n
    return (
        n.a + 1,
        m.x * m.s(),
        n._replace(b=4).b,
        m._asdict()["y"],
        NT._make([1, 2]),
        NT2._fields,
        n[1],
        len(m),
        NT(1, 2) == (1, 2),
        NT2(1)._field_defaults,
    )


@runtime_checkable
class Proto(Protocol):
    def f(self): ...


class PI:
    def f(self):
        return 3


T = TypeVar("T")


class Gen(Generic[T]):
    def __init__(self, x):
        self.x = x


@HABITS.append
def typings(t):
    return (
        t + Gen[int](2).x,
        isinstance(PI(), Proto),
        typing.cast(int, "a"),
        get_origin(list[int]),
        Optional[int] == Union[int, None],
        isinstance(1, int | str),
    )


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


@HABITS.append
def slots(t):
    s = Slots()
    s.b = t
    try:
        s.c = 1
        r = 0
    except AttributeError:
        r = 1
    return s.b + s.a, r, hasattr(s, "a"), s.__slots__


class MO(collections.OrderedDict):
    def __post(self):
        pass

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return tuple(self.values())[k]

    def __setattr__(self, n, v):
        if n in self.keys() and v is not None:
            super().__setitem__(n, v)
        super().__setattr__(n, v)

    def __setitem__(self, k, v):
        super().__setitem__(k, v)
        super().__setattr__(k, v)


@HABITS.append
def model_output(t):
    m = MO()
    m["a"] = t
    m["b"] = 2
    m.b = 5
    return m.a + 1, m["b"], m[0], list(m), m.b


class MyList(list):
    def first(self):
        return self[0]


class MyDict(dict):
    def __missing__(self, k):
        return k * 2

    def __setitem__(self, k, v):
        super().__setitem__(k, v + 1)


@HABITS.append
def builtin_subclasses(t):
    l = MyList([t, 1])
    l.append(2)
    d = MyDict(a=1)
    d["b"] = 2
    return l.first() + 1, l[1:], d["zz"], dict(d), len(l), isinstance(l, list), d.get("q", 4)


@HABITS.append
def class_made_inside(t):
    class Local:
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v

    return Local(t * 2).get()


@HABITS.append
def namedtuple_inside(t):
    P = collections.namedtuple("P", "x y")
    return P(t, 1).x + 1


@pytest.mark.parametrize("fn", HABITS, ids=lambda fn: fn.__name__)
def test_habit(fn, one_graph):
    one_graph(fn)
