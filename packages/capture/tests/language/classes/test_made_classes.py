"""Classes that a compiled function makes: each form of a class statement, each use of the class and
of its instances, in the frame and where they leave it, gives what eager gives. Generated: all
classes with all uses; a class that leaves is probed by the same code as eager's.
"""

import abc
import collections
import dataclasses
import enum
import functools
import re
import typing

import pytest
import torch
from flambeau_capture import optimize


class Base:
    k = 2
    log: list = []

    def m(self, x):
        return x * self.k

    def __repr__(self):
        return f"<{type(self).__name__}>"


class Slotted:
    __slots__ = ("first",)


class Noted:
    def __get__(self, obj, kind=None):
        return 5 if obj is None else obj.k + 1

    def __set__(self, obj, value):
        obj.__dict__["noted"] = value


class Named:
    def __set_name__(self, owner, name):
        self.name = name


class Registering:
    known: list = []

    def __init_subclass__(cls, **kwargs):
        Registering.known.append(cls.__name__)


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


Point = collections.namedtuple("Point", "x y")

#: statements that make a class C, of `t` (a tensor) and `n` (a number)
CLASSES = {
    "plain": "class C:\n    k = n\n    def m(self, x): return x * self.k",
    "empty": "class C: pass",
    "documented": "class C:\n    'Words.'\n    k: int = 3\n    j: 'str'\n    def m(self): 'More.'",
    "own tensors": "class C:\n    k = t + 1\n    both = (t, n)\n"
    "    def m(self, x): return self.k * x",
    "init": "class C:\n    def __init__(self, v=n, *rest, w=t): self.k, self.w = v, w\n"
    "    def m(self, x): return self.w + x * self.k",
    "derived": "class C(Base):\n    k = 3\n    def m(self, x): return super().m(x) + 1",
    "two bases": "class A(Base): k = 7\n"
    "class B(Base):\n    def m(self, x): return super().m(x) + 2\n"
    "class C(B, A): pass",
    "old super": "class C(Base):\n    def m(self, x): return super(C, self).m(x) - 1",
    "own class": "class C:\n    k = 1\n    def m(self, x): return C.k + x\n"
    "    def again(self): return __class__()",
    "property": "class C:\n    _k = n\n    @property\n    def k(self): 'Read.'; return self._k\n"
    "    @k.setter\n    def k(self, v): self._k = v\n    @k.deleter\n"
    "    def k(self): self._k = 0",
    "by functions": "class C:\n    def f(self): return 4\n    k = property(f, doc='Four.')\n"
    "    m = staticmethod(lambda x: x * 2)",
    "static": "class C:\n    k = 2\n    @staticmethod\n    def m(x): return x + n\n"
    "    @classmethod\n    def c(cls, x=1): return x * cls.k",
    "cached": "class C:\n    k = 2\n    @functools.cached_property\n"
    "    def p(self): return t * self.k",
    "partial": "class C:\n    k = 2\n    def p(self, x, y): return x * y * self.k\n"
    "    m = functools.partialmethod(p, y=n)",
    "partial, no method": "class C:\n    k = 2\n    m = functools.partial(max, n)",
    "slots": "class C:\n    __slots__ = ('k', 'noted')\n    def __init__(self): self.k = t",
    "slots in a list": "class C(Slotted):\n    __slots__ = ['k']",
    "inner": "class C:\n    class Inner:\n        v = n\n        def w(self): return self.v + 1\n"
    "    k = Inner.v\n    def m(self, x): return self.Inner().w() * x",
    "closure": "k = t * 2\nclass C:\n    j = k\n    k = 1\n    def m(self, x): return k + x",
    "class variable": "a = 1\nclass C:\n    a = a + n\n    k = [a for _ in range(2)]",
    "loop": "class C:\n    for i in range(3):\n        if i == 1: k = i\n    del i",
    "calls": "def deco(f): return lambda self, *a: f(self, *a) + 1\n"
    "class C:\n    k = 1\n    @deco\n    def m(self, x): return x * self.k",
    "decorated": "def deco(c): c.extra = 1; return c\n@deco\nclass C: k = n",
    "locals": "class C:\n    locals()['k'] = n\n    j = sorted(x for x in locals() if x[0] != '_')",
    "globals": "class C:\n    global MADE\n    MADE = 1\n    k = MADE",
    "special": "class C:\n    k = 1\n    def __init__(self, v=1): self.v = v\n"
    "    def __add__(self, o): return C(self.v + getattr(o, 'v', o))\n"
    "    def __eq__(self, o): return isinstance(o, C) and self.v == o.v\n"
    "    def __hash__(self): return 3\n    def __len__(self): return 3\n"
    "    def __call__(self, x): return x * self.v\n    def __getitem__(self, i): return i\n"
    "    def __iter__(self): yield self.v; yield 2\n    def __bool__(self): return False\n"
    "    def __getattr__(self, a): return a + '!' if a[0] == 'q' else NotImplemented\n"
    "    def __repr__(self): return f'C({self.v})'\n"
    "    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
    "    def __contains__(self, i): return i == 1",
    "equal only": "class C:\n    k = 1\n    def __eq__(self, o): return True",
    "new": "class C:\n    def __new__(cls, *a):\n        made = super().__new__(cls)\n"
    "        made.k = len(a)\n        return made",
    "descriptor": "class C:\n    k = 1\n    d = Noted()",
    "abstract": "class A(abc.ABC):\n    @abc.abstractmethod\n    def m(self, x): ...\n"
    "class C(A):\n    k = 2\n    def m(self, x): return x * self.k",
    "still abstract": "class C(abc.ABC):\n    k = 1\n    @property\n    @abc.abstractmethod\n"
    "    def p(self): ...",
    "exception": "class C(ValueError):\n    k = 1\n    def m(self, x): return x + len(self.args)",
    "list": "class C(list):\n    k = 2\n    def m(self, x): return x * len(self)",
    "dict": "class C(dict):\n    k = 2\n    def __missing__(self, i): return i",
    "int": "class C(int):\n    k = 2\n    def m(self, x): return x * self",
    "tuple": "class C(tuple):\n    k = 2",
    "named tuple": "class C(Point):\n    k = 2\n"
    "    def __new__(cls, *a): return super().__new__(cls, t, n)\n"
    "    def m(self, x): return self.x + x",
    "module": "class C(torch.nn.Module):\n    k = 2\n    def __init__(self):\n"
    "        super().__init__()\n        self.w = torch.nn.Parameter(torch.ones(3))\n"
    "    def forward(self, x): return x * self.w\n    m = forward",
    "type": "C = type('C', (Base,), {'k': n, 'm': lambda self, x: x + self.k})",
    "type with names": "C = type('D', (), "
    "dict(__module__='here', __doc__='Doc.', __qualname__='E.F', k=t))",
    "type without a base": "C = type('C', (), {})\nC.k = n",
    "data": "@dataclasses.dataclass\nclass C:\n    k: int = 2\n    v: object = None\n"
    "    def m(self, x): return x * self.k",
    "frozen": "@dataclasses.dataclass(frozen=True, order=True)\nclass C:\n    k: int = n",
    "fields": "@dataclasses.dataclass(eq=False)\nclass C:\n    k: int = 1\n"
    "    xs: list = dataclasses.field(default_factory=list, repr=False)\n"
    "    h: int = dataclasses.field(default=3, compare=False)\n"
    "    def __post_init__(self): self.xs.append(self.k)\n    def m(self, x): return x + self.h",
    "data derived": "@dataclasses.dataclass\nclass A:\n    k: int = 2\n@dataclasses.dataclass\n"
    "class C(A):\n    j: int = dataclasses.field(kw_only=True, default=4)",
    "data slots": "@dataclasses.dataclass(slots=True)\nclass C:\n    k: int = 2\n"
    "    v: object = None\n    def m(self, x): return x * self.k + C.m.__code__.co_argcount",
    "frozen slots": "@dataclasses.dataclass(frozen=True, slots=True, order=True)\n"
    "class C:\n    k: int = n",
    "weak slots": "@dataclasses.dataclass(slots=True, weakref_slot=True)\nclass C:\n"
    "    k: int = 1\n    xs: list = dataclasses.field(default_factory=list)",
    "slots derived": "@dataclasses.dataclass(slots=True)\nclass A:\n    k: int = 2\n"
    "@dataclasses.dataclass(slots=True)\nclass C(A, Base):\n    j: int = 4\n"
    "    def m(self, x): return A.m(self, x) + self.j if hasattr(A, 'm') else x",
    "slots after": "class A:\n    k: object = t\nA.j = 3\nC = dataclasses.dataclass(slots=True)(A)",
    "data after": "class A:\n    k: object = t\nC = dataclasses.dataclass(A)",
    "registering": "class C(Registering): k = 1",
    "registering with names": "class A:\n    def __init_subclass__(cls, tag=0, **more):\n"
    "        super().__init_subclass__(**more)\n        cls.tag = tag\n"
    "class C(A, tag=n):\n    k = 2\n    def m(self, x): return x * self.tag",
    "told its name": "class C:\n    k = Named()",
    "told its name here": "class N:\n    def __set_name__(self, owner, name):\n"
    "        owner.names = getattr(owner, 'names', ()) + (name,)\n"
    "    def __get__(self, o, kind=None): return 4\nclass C:\n    k = N()\n    j = N()\n"
    "    def m(self, x): return x * len(self.names)",
    "told and raises": "class N:\n    def __set_name__(self, owner, name): raise KeyError(name)\n"
    "class C: k = N()",
    "metaclass": "class C(metaclass=Meta): k = 1",
    "of a metaclass": "class A(metaclass=Meta): pass\nclass C(A): k = 1",
    "metaclass made here": "class M(type):\n    def __new__(mcs, name, bases, space, **more):\n"
    "        space['added'] = len(more)\n"
    "        return super().__new__(mcs, name, bases, space)\n"
    "    def __init__(cls, name, bases, space, **more):\n        cls.told = name\n"
    "class C(metaclass=M, z=1):\n    k = n\n    def m(self, x): return x * self.k + self.added",
    "metaclass that prepares": "class M(type):\n    @classmethod\n"
    "    def __prepare__(mcs, name, bases): return {'k': n}\n"
    "class C(metaclass=M):\n    def m(self, x): return x * self.k",
    "metaclass that keeps": "class M(type):\n    def __setattr__(cls, name, value):\n"
    "        super().__setattr__(name, [value])\nclass C(metaclass=M): pass\nC.k = n",
    "abstract metaclass": "class M(abc.ABCMeta):\n    def __len__(cls): return 7\n"
    "class C(metaclass=M):\n    k = 1\n    @abc.abstractmethod\n    def m(self): ...",
    "metaclass with hooks": "class A(metaclass=Meta):\n"
    "    def __init_subclass__(cls): cls.k = cls.__name__\nclass C(A): pass",
    "function as metaclass": "def make(name, bases, space, **more):\n"
    "    return type(name, bases, {**space, 'k': sorted(more)})\n"
    "class C(metaclass=make, z=1): j = 1",
    "entries": "class A:\n    def __mro_entries__(self, bases): return (Base,)\n"
    "class C(A()): j = 3",
    "enumeration": "class C(enum.Enum):\n    k = 3\n    j = 'a'\n"
    "    def m(self, x): return x * len(self.name)\n    @property\n"
    "    def p(self): return self.value\nC = C.k.__class__",
    "numbers by the library": "class E(enum.IntEnum):\n    A = enum.auto()\n    B = enum.auto()\n"
    "class C:\n    k = E.B\n    def m(self, x, e=E.A): return x * self.k + e",
    "flags": "class E(enum.Flag):\n    A = 1\n    B = 2\n"
    "class C:\n    k = (E.A | E.B).value\n    def m(self, x): return x * (E.B in (E.A | E.B))",
    "tuple with names": "class N(typing.NamedTuple):\n    k: int = 2\n    v: object = t\n"
    "    def m(self, x): return x * self.k\nclass C(N): pass",
    "conflict": "class A(metaclass=Meta): pass\nclass M(type): pass\nclass C(A, metaclass=M): pass",
    "unknown keyword": "class C(z=1): pass",
    "base that is none": "class C(n): pass",
    "mutable default": "@dataclasses.dataclass\nclass C:\n    k: list = []",
    "bad order": "@dataclasses.dataclass\nclass C:\n    k: int = 1\n    j: int",
    "bad slots": "class C:\n    __slots__ = ('k',)\n    k = 1",
    "bad bases": "class C(int, str): pass",
    "bad order of bases": "class C(object, Base): pass",
    "undefined": "class C:\n    k = missing",
    "raises": "class C:\n    k = 1 / (n - n)",
}
#: what ends the graph, by the reason
BROKEN = {
    "slots with super": "@dataclasses.dataclass(slots=True)\nclass C(Base):\n    k: int = 3\n"
    "    def m(self, x): return super().m(x) + 1",
    "checks": "class C(abc.ABC):\n    k = 1\n    @classmethod\n"
    "    def __subclasshook__(cls, o): return True",
    "dispatch": "class C:\n    k = 2\n    @functools.singledispatchmethod\n"
    "    def m(self, x): return x * 3\n    @m.register\n    def _(self, x: int): return x",
    "of a generic": "class C(typing.Generic[typing.TypeVar('T')]): k = 1",
    "enumeration with its own __init__": "class E(enum.Enum):\n    A = 1\n"
    "    def __init__(self, v): self.v = v + 1\nclass C: k = E.A.v",
    "enumeration by a call": "E = enum.Enum('E', 'A B')\nclass C: k = E.B.value",
    "enumeration that reads": "class E(enum.IntEnum):\n    A = enum.auto()\n    B = A + 1\n"
    "class C: k = E.B",
}
#: expressions of C, of an instance o, and of a tensor
USES = [
    "C.k",
    "o.k",
    "o.m(t)",
    "C.m",
    "type(o) is C",
    "isinstance(o, C), isinstance(o, Base)",
    "issubclass(C, Base), issubclass(C, object)",
    "C.__name__, C.__qualname__, C.__module__, C.__doc__",
    "[c.__name__ for c in C.__mro__]",
    "C.__bases__ == (object,)",
    "str(C)",
    "hasattr(o, 'zz')",
    "o.zz",
    "C.zz",
    "getattr(C, 'k', 0)",
    "setattr(C, 'k', 9), C.k",
    "setattr(o, 'k', 8), o.k",
    "setattr(C, 'new', lambda self: self), o.new() is o",
    "o == C(), o == o, o != o",
    "o < o",
    "hash(o) == hash(o)",
    "{C: 1}[C]",
    "{o: 1}[o]",
    "len(o)",
    "o + 1",
    "(o + o).v",
    "o(t)",
    "o[1]",
    "list(o)",
    "bool(o)",
    "repr(o)[:3]",
    "1 in o",
    "C.c(t)",
    "o.c()",
    "o.p",
    "(o.p, o.p)",
    "o.Inner.v",
    "o.d, C.d",
    "setattr(o, 'd', 3), o.noted",
    "delattr(o, 'k')",
    "delattr(C, 'k'), hasattr(o, 'k')",
    "vars(o)",
    "C.__annotations__",
    "dataclasses.replace(o, k=5).k",
    "dataclasses.asdict(o)",
    "[f.name for f in dataclasses.fields(o)]",
    "o.again().k",
    "C(1, 2).k",
    "C(k=4).k",
    "o.args",
    "o.append(1)",
    "o['a']",
    "o * 2",
    "o.quick",
    "super(C, o).m(t)",
    "callable(o), callable(C)",
    "C.m.__name__, C.m.__qualname__",
    "functools.partial(C.m, o)(t)",
    "[C() for _ in range(2)][1].k",
    # what leaves the frame
    "C",
    "o",
    "[o, o]",
    "(C, o)",
    "o.m",
    "{'a': C}",
    "type('D', (C,), {'z': t})",
    "lambda: C",
    "C.__init__",
    "[C, C.__mro__]",
    "vars(C).get('p')",
]
#: what is asked of what left
PROBES = [
    "x.__name__",
    "x.__qualname__",
    "x.__module__",
    "x.__doc__",
    "[c.__name__ for c in x.__mro__]",
    "list(vars(x))",
    "x.k",
    "x().k",
    "x().m(t)",
    "type(x).__name__",
    "type(x).__qualname__",
    "x.m(t)",
    "list(vars(type(x)))",
    "x.again().k",
    "x.__annotations__",
    "x()",
    "x[0].k",
    "x[0] is x[1]",
    "type(x[1]) is x[0]",
    "x['a'].k",
    "x[0]().k",
    "x.z",
    "x().p, type(x.p)",
    "x.k.__doc__",
    "x.__slots__",
    "x.__abstractmethods__",
    "x(t)",
    "isinstance(x, Base)",
    "x == x",
    "x.Inner.__qualname__",
    "vars(x)",
    "x.__class__.m is type(x).m",
    "x().new()",
    "x.__dataclass_fields__['k'].name",
]

SLOTTED = {"slots", "slots in a list", "data slots", "frozen slots", "weak slots", "slots after",
           "slots derived"}  # fmt: skip
#: uses that end the graph, by the classes that they do it for
ENDS = {
    "hash(o) == hash(o)": {"all"},  # it is an address
    "repr(o)[:3]": {"all"},
    "{o: 1}[o]": {"int", "named tuple", "exception", "tuple", "tuple with names"},
    "C.__annotations__": {"all"},  # Python makes them when they are asked for
    "vars(C).get('p')": {"all"},
    "setattr(C, 'k', 9), C.k": SLOTTED,
    "delattr(C, 'k'), hasattr(o, 'k')": SLOTTED,
    "functools.partial(C.m, o)(t)": {"module", "partial"},
    "C.k": {"tuple with names"},
    "getattr(C, 'k', 0)": {"tuple with names"},
    "o.m(t)": {"module"},
    "super(C, o).m(t)": {"module"},
    "o(t)": {"module"},
    "dataclasses.asdict(o)": {"data derived"},
    "C.__name__, C.__qualname__, C.__module__, C.__doc__": {"data after", "slots after"},
}
HEAD = "def f(t, n):\n"
#: what the programs import
MODULES = {each.__name__: each for each in (abc, dataclasses, enum, functools, typing)}


def function(statement, use):
    body = ["u = t + 1", statement, "o = C()", f"return ({use}), u * 2"]
    lines = "\n".join(body).splitlines()
    world = {**globals(), **MODULES, "__name__": "made_world"}
    exec(HEAD + "".join(f"    {line}\n" for line in lines), world)
    return world["f"]


def shown(value):
    """A value as text: addresses do not count."""
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return [type(value).__name__, *map(shown, value)]
    if isinstance(value, dict):
        return [type(value).__name__, *map(shown, value.items())]
    if isinstance(value, torch.Tensor):
        return str(value)
    try:
        text = str(value)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return re.sub("0x[0-9a-f]+", "at", f"{type(value)} {text}")


def probed(value):
    if isinstance(value, str):
        return []
    found = []
    for probe in PROBES:
        try:
            found.append((probe, shown(eval(probe, {**globals(), "x": value, "t": torch.ones(3)}))))
        except Exception as error:
            found.append((probe, type(error), str(error)))
    return found


def outcome(fn):
    before = Registering.known[:]
    try:
        value, first = fn(torch.arange(3.0), 3)
        return [shown(first), shown(value), *probed(value), Registering.known[len(before) :]]
    except Exception as error:
        return [type(error), str(error)]
    finally:
        Registering.known[:] = before


@pytest.mark.sweep(36)
@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("name", [*CLASSES, *BROKEN])
def test_every_class_in_every_use(name, part):
    """In a sixth of the uses; in all with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""
    for use in USES[part::6]:
        fn = function({**CLASSES, **BROKEN}[name], use)
        expected = outcome(fn)
        graphs = []
        compiled = optimize(lambda gm, _: graphs.append(gm) or gm.forward)(fn)  # noqa: B023
        for _ in range(2):
            assert outcome(compiled) == expected, use
        ended = isinstance(expected[0], type) or name in BROKEN
        if not ended and not ENDS.get(use, frozenset()) & {name, "all"}:
            assert len(graphs) == 1, use


@pytest.mark.parametrize(
    "body",
    [
        "class M(typing.TypedDict): a: int\n    r = M(a=n), type(M(a=1)) is dict, M.__name__",
        "class M(typing.TypedDict): a: int\n    class N(M): b: object\n    r = N(a=n, b=t)",
        "M = typing.TypedDict('M', {'a': int}); r = M(a=n)",
        "class M(typing.TypedDict):\n        'd'\n        a: int\n    r = M.__doc__, M()",
    ],
)
def test_typed_dicts_are_made_in_one_graph(body):
    space = {"typing": typing}
    exec(f"def f(t, n):\n    {body}\n    return t * n, r", space)
    compiled = optimize("eager", nopython=True)(space["f"])
    for n in (2, 2, 3):
        found, want = (run(torch.ones(2), n)[1] for run in (compiled, space["f"]))
        assert repr(found) == repr(want)
