"""Random graphs of primitives.

In: a source of decisions (a random generator, or hypothesis, which can then shrink). Out: programs.
Invariant: every graph is in the dialect and its result is well defined: what jumps (comparison,
truncation to an integer) is only applied to values without rounding errors.

The smaller the numbers that the source gives, the smaller and plainer the graph.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.programs.programs import Builder, KitProgram
from flambeau_prims.conformance.samples.tensors import BF16, BOOL, CPU, F32, F64, I64, moved, signed
from flambeau_prims.graph_recorder import TracedValue, map_values

T = TypeVar("T")


class DrawnDecisions(Protocol):
    """Where a random graph's shape comes from."""

    def number(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        ...


@dataclass(frozen=True)
class Dice:
    """Decisions by a random generator."""

    source: random.Random

    def number(self, low: int, high: int) -> int:
        return self.source.randint(low, high)


@dataclass(frozen=True)
class _Known:
    """A value of the graph; `exact`: it has no rounding error."""

    value: TracedValue
    exact: bool

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        return self.value.ndim


class _NothingFits(Exception):
    """No value of the graph can be an operand of the step that was drawn, which is left out."""


_DTYPES = (F32, I64, F64, BF16, BOOL)
_SIZES = (2, 3, 1, 5, 0)
_SMOOTH = ("neg", "sin", "abs", "cos", "tanh", "sigmoid", "erf", "atan")
_PAIRS = ("add", "sub", "mul", "maximum", "minimum")
_TESTS = ("lt", "eq", "ge", "ne")
_LOGIC = ("logical_and", "logical_or", "logical_xor")


class _Growing:
    """A graph being built; each method adds something or raises `_NothingFits`."""

    def __init__(self, decisions: DrawnDecisions, device: torch.device) -> None:
        self.number, self.device = decisions.number, device
        self.builder = Builder()
        self.known: list[_Known] = []
        self.prims: set[str] = set()

    def pick(self, items: Sequence[T]) -> T:
        return items[self.number(0, len(items) - 1)]

    def any_of(self, accepts: Callable[[_Known], bool] = lambda k: True) -> _Known:
        fitting = [k for k in self.known if accepts(k)]
        if not fitting:
            raise _NothingFits
        return self.pick(fitting)

    def two(self, accepts: Callable[[_Known], bool]) -> tuple[_Known, _Known]:
        """An operand, and another of its shape and dtype if there is one, else itself."""
        a = self.any_of(accepts)
        like = (a.shape, a.dtype)
        others = [k for k in self.known if k is not a and (k.shape, k.dtype) == like]
        return a, self.pick(others) if others else a

    def some_dim(self, a: _Known) -> int:
        return self.number(0, a.ndim - 1)

    def add_input(self) -> None:
        if self.known and self.number(0, 1) == 0:  # so that two operands often go together
            first = self.known[0]
            dtype, shape = first.dtype, first.shape
        else:
            dtype = self.pick(_DTYPES)
            shape = tuple(self.pick(_SIZES) for _ in range(self.number(0, 3)))
        g = torch.Generator().manual_seed(len(self.builder.inputs))
        x: Tensor = signed(shape, dtype, g)
        if x.ndim > 1 and self.number(0, 3) == 3:
            x = signed(shape[::-1], dtype, g).permute(*reversed(range(len(shape))))
        self.known.append(_Known(self.builder.input(moved(x, self.device)), exact=True))

    def emit(self, name: str, *args: Any, exact: bool, **kwargs: Any) -> None:
        """Add a call on known values, also in lists."""
        self.prims.add(name)
        given = map_values(lambda item: item.value if isinstance(item, _Known) else item, args)
        for result in self.builder.call(PRIMS[name].overload, given, kwargs):
            self.known.append(_Known(result, exact or not result.dtype.is_floating_point))

    def unary(self) -> None:
        a = self.any_of(lambda k: k.dtype.is_floating_point)
        name = self.pick(_SMOOTH)
        self.emit(name, a, exact=a.exact and name in ("neg", "abs"))

    def binary(self) -> None:
        a, b = self.two(lambda k: k.dtype != BOOL)
        name = self.pick(_PAIRS)
        self.emit(name, a, b, exact=a.exact and b.exact and name in ("maximum", "minimum"))

    def compare(self) -> None:
        pair = self.two(lambda k: k.exact and k.dtype != BOOL)
        if not pair[1].exact:
            raise _NothingFits
        self.emit(self.pick(_TESTS), *pair, exact=True)

    def logic(self) -> None:
        pair = self.two(lambda k: k.dtype == BOOL)
        self.emit(self.pick(_LOGIC), *pair, exact=True)

    def choose(self) -> None:
        cond = self.any_of(lambda k: k.dtype == BOOL)
        a, b = self.two(lambda k: k.shape == cond.shape)
        self.emit("where", cond, a, b, exact=a.exact and b.exact)

    def cast(self) -> None:
        dtype = self.pick((F32, F64, BF16, I64))
        a = self.any_of(lambda k: k.dtype != dtype and (dtype != I64 or k.exact))
        wider = dtype == F64 or (dtype == F32 and a.dtype in (BF16, BOOL))
        self.emit("cast", a, dtype=dtype, exact=a.exact and (wider or dtype == I64))

    def reduce(self) -> None:
        a = self.any_of(lambda k: k.ndim > 0 and k.dtype != BOOL)
        name, dim = self.pick(("sum", "amax", "amin")), self.some_dim(a)
        if name != "sum" and a.shape[dim] == 0:
            raise _NothingFits
        self.emit(name, a, [dim], exact=a.exact and name != "sum")

    def scan(self) -> None:
        a = self.any_of(lambda k: k.ndim > 0 and k.dtype in (F32, F64, I64))
        self.emit("cumsum", a, self.some_dim(a), exact=False)

    def permute(self) -> None:
        a = self.any_of(lambda k: k.ndim > 1)
        turn = self.number(1, a.ndim - 1)
        self.emit("permute", a, [(d + turn) % a.ndim for d in range(a.ndim)], exact=a.exact)

    def flatten(self) -> None:
        a = self.any_of()
        self.emit("reshape", a, [a.value.numel()], exact=a.exact)

    def broadcast(self) -> None:
        a = self.any_of(lambda k: k.ndim < 3)
        shape = [self.pick(_SIZES[:2]), *a.shape]
        self.emit("broadcast_in_dim", a, shape, list(range(1, len(shape))), exact=a.exact)

    def part(self) -> None:
        a = self.any_of(lambda k: k.ndim > 0)
        start = [self.number(0, min(1, n)) for n in a.shape]
        step = [self.number(1, 2) for _ in a.shape]
        self.emit("slice", a, start, list(a.shape), step, exact=a.exact)

    def pad(self) -> None:
        a = self.any_of(lambda k: k.ndim > 0)
        low = [self.number(0, 1) for _ in a.shape]
        self.emit("pad", a, low, low[::-1], 1, exact=a.exact)

    def join(self) -> None:
        pair = self.two(lambda k: k.ndim > 0)
        self.emit("cat", pair, self.some_dim(pair[0]), exact=all(k.exact for k in pair))

    def flip(self) -> None:
        a = self.any_of(lambda k: k.ndim > 0)
        self.emit("flip", a, [self.some_dim(a)], exact=a.exact)

    def product(self) -> None:
        a = self.any_of(lambda k: k.ndim == 2 and k.dtype in (F32, F64))
        fits = (a.dtype, a.shape[1])
        b = self.any_of(lambda k: k.ndim == 2 and (k.dtype, k.shape[0]) == fits)
        self.emit("mm", a, b, exact=False)

    def copy(self) -> None:
        a = self.any_of()
        self.emit("clone", a, exact=a.exact)


_STEPS: tuple[Callable[[_Growing], None], ...] = (
    _Growing.binary,
    _Growing.unary,
    _Growing.reduce,
    _Growing.permute,
    _Growing.broadcast,
    _Growing.part,
    _Growing.flatten,
    _Growing.compare,
    _Growing.choose,
    _Growing.cast,
    _Growing.pad,
    _Growing.join,
    _Growing.flip,
    _Growing.logic,
    _Growing.scan,
    _Growing.product,
    _Growing.copy,
    # again, as programs are mostly these
    _Growing.binary,
    _Growing.unary,
    _Growing.binary,
)


def random_program(
    decisions: DrawnDecisions, name: str = "random", *, steps: int = 10, device: torch.device = CPU
) -> KitProgram:
    """A graph of 1 to 3 inputs and up to `steps` calls; every value not used is an output."""
    growing = _Growing(decisions, device)
    for _ in range(decisions.number(1, 3)):
        growing.add_input()
    for step in range(steps):
        if step and decisions.number(0, 7) == 0:  # drawn each time, so that a step can be cut out
            break
        with contextlib.suppress(_NothingFits):
            growing.pick(_STEPS)(growing)
    made = [k for k in growing.known if k.value.node.op != "placeholder"]
    outputs = [k for k in made if not k.value.node.users] or growing.known[:1]
    dtypes = frozenset(k.value.dtype for k in growing.known)
    return KitProgram(
        name=name,
        family="random graphs",
        gm=growing.builder.build([k.value for k in outputs]),
        inputs=tuple(growing.builder.inputs),
        judges=tuple("exact" if k.exact else "close" for k in outputs),
        dtypes=dtypes,
        prims=frozenset(growing.prims),
    )
