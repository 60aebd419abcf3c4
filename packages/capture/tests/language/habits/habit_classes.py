"""Classes that several tests of habits use."""

import dataclasses
import enum
from typing import Any


class Base:
    cv = 1

    def __init__(self, a):
        self.a = a
        self._p = 2

    @property
    def p(self):
        return self._p

    @p.setter
    def p(self, v):
        self._p = v * 2

    @p.deleter
    def p(self):
        del self._p

    @classmethod
    def make(cls, *a):
        return cls(*a)

    @staticmethod
    def st(x):
        return x * 2

    def __call__(self, x):
        return x + self.a

    def __repr__(self):
        return f"B({self.a})"

    def __eq__(self, o):
        return isinstance(o, Base) and self.a == o.a

    def __hash__(self):
        return hash(self.a)

    def __add__(self, o):
        return self.a + (o.a if isinstance(o, Base) else o)

    __radd__ = __add__

    def __iadd__(self, o):
        self.a += o
        return self

    def __neg__(self):
        return -self.a

    def __bool__(self):
        return self.a > 0

    def __len__(self):
        return 7

    def __getitem__(self, i):
        return (i, self.a)

    def __contains__(self, x):
        return x == self.a

    def __iter__(self):
        return iter([self.a, 1])

    def __lt__(self, o):
        return self.a < o.a

    def __format__(self, s):
        return f"<{s}>"

    def __str__(self):
        return "str"

    def __index__(self):
        return 2

    def __int__(self):
        return 9

    def __float__(self):
        return 2.5

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.a = 100

    def __matmul__(self, o):
        return "mm"

    def __getattr__(self, n):
        if n.startswith("x_"):
            return n
        raise AttributeError(n)


class Derived(Base):
    def __init__(self, a, b=1):
        super().__init__(a)
        self.b = b

    def __call__(self, x):
        return super().__call__(x) * self.b


@dataclasses.dataclass
class DC:
    a: int
    b: list = dataclasses.field(default_factory=list)
    c: Any = None

    def __post_init__(self):
        self.s = self.a * 2


@dataclasses.dataclass(frozen=True)
class FDC:
    a: int = 1
    b: str = "x"


@dataclasses.dataclass(slots=True)
class SDC:
    a: int
    t: Any = None


@dataclasses.dataclass(order=True)
class ODC:
    a: int
    b: int = 0


class Color(enum.Enum):
    R = 1
    G = 2

    @property
    def low(self):
        return self.name.lower()


class IE(enum.IntEnum):
    A = 1
    B = 2


class SE(enum.StrEnum):
    X = "x"


class FL(enum.Flag):
    A = enum.auto()
    B = enum.auto()
