"""Random graphs of primitives.

In: a source of decisions (a random generator, or hypothesis, which can then shrink). Out: programs.
Invariant: every graph is in the dialect and its result is well defined: what jumps (comparison,
truncation to an integer) is only applied to values without rounding errors.

The smaller the numbers that the source gives, the smaller and plainer the graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.programs.programs import Builder, KitProgram
from flambeau_prims.conformance.samples.tensors import BF16, BOOL, CPU, F32, F64, I64, moved, signed
from flambeau_prims.values import TracedValue

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


@dataclass
class _Known:
    """A value of the graph; `exact`: it has no rounding error."""

    value: TracedValue
    exact: bool


_DTYPES = (F32, I64, F64, BF16, BOOL)
_SIZES = (2, 3, 1, 5, 0)
_SMOOTH = ("neg", "sin", "abs", "cos", "tanh", "sigmoid", "erf", "atan")
_PAIRS = ("add", "sub", "mul", "maximum", "minimum")
_TESTS = ("lt", "eq", "ge", "ne")
_LOGIC = ("logical_and", "logical_or", "logical_xor")


class _Growing:
    """A graph being built; each method adds something or says that it cannot."""

    def __init__(self, decisions: DrawnDecisions, device: torch.device) -> None:
        self.decide, self.device = decisions, device
        self.builder = Builder()
        self.known: list[_Known] = []
        self.prims: set[str] = set()

    def pick(self, items: Sequence[T]) -> T:
        return items[self.decide.number(0, len(items) - 1)]

    def any_of(self, accepts: Callable[[_Known], bool]) -> _Known | None:
        fitting = [k for k in self.known if accepts(k)]
        return self.pick(fitting) if fitting else None

    def add_input(self) -> None:
        if self.known and self.decide.number(0, 1) == 0:  # so that two operands often go together
            first = self.known[0].value
            dtype, shape = first.dtype, tuple(first.shape)
        else:
            dtype = self.pick(_DTYPES)
            shape = tuple(self.pick(_SIZES) for _ in range(self.decide.number(0, 3)))
        g = torch.Generator().manual_seed(len(self.builder.inputs))
        x: Tensor = signed(shape, dtype, g)
        if x.ndim > 1 and self.decide.number(0, 3) == 3:
            x = signed(shape[::-1], dtype, g).permute(*reversed(range(len(shape))))
        self.known.append(_Known(self.builder.input(moved(x, self.device)), exact=True))

    def emit(self, name: str, *args: Any, exact: bool, **kwargs: Any) -> bool:
        self.prims.add(name)
        for result in self.builder.call(PRIMS[name].overload, args, kwargs):
            self.known.append(_Known(result, exact or not result.dtype.is_floating_point))
        return True

    def unary(self) -> bool:
        a = self.any_of(lambda k: k.value.dtype.is_floating_point)
        name = self.pick(_SMOOTH)
        if a is None:
            return False
        return self.emit(name, a.value, exact=a.exact and name in ("neg", "abs"))

    def _two(self, accepts: Callable[[_Known], bool]) -> tuple[_Known, _Known] | None:
        a = self.any_of(accepts)
        if a is None:
            return None
        like = (a.value.shape, a.value.dtype)
        b = self.any_of(lambda k: k is not a and (k.value.shape, k.value.dtype) == like)
        return (a, b or a)

    def binary(self) -> bool:
        pair = self._two(lambda k: k.value.dtype != BOOL)
        name = self.pick(_PAIRS)
        if pair is None:
            return False
        a, b = pair
        exact = a.exact and b.exact and name in ("maximum", "minimum")
        return self.emit(name, a.value, b.value, exact=exact)

    def compare(self) -> bool:
        pair = self._two(lambda k: k.exact and k.value.dtype != BOOL)
        if pair is None or not all(k.exact for k in pair):
            return False
        return self.emit(self.pick(_TESTS), pair[0].value, pair[1].value, exact=True)

    def logic(self) -> bool:
        pair = self._two(lambda k: k.value.dtype == BOOL)
        if pair is None:
            return False
        return self.emit(self.pick(_LOGIC), pair[0].value, pair[1].value, exact=True)

    def choose(self) -> bool:
        cond = self.any_of(lambda k: k.value.dtype == BOOL)
        if cond is None:
            return False
        shape = cond.value.shape
        pair = self._two(lambda k: k.value.shape == shape)
        if pair is None:
            return False
        a, b = pair
        return self.emit("where", cond.value, a.value, b.value, exact=a.exact and b.exact)

    def cast(self) -> bool:
        a, dtype = self.any_of(lambda k: True), self.pick((F32, F64, BF16, I64))
        if a is None or a.value.dtype == dtype or (dtype == I64 and not a.exact):
            return False
        wider = dtype == F64 or (dtype == F32 and a.value.dtype in (BF16, BOOL))
        exact = a.exact and (wider or dtype == I64)
        return self.emit("cast", a.value, dtype=dtype, exact=exact)

    def reduce(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim > 0 and k.value.dtype != BOOL)
        name = self.pick(("sum", "amax", "amin"))
        if a is None:
            return False
        dims = [self.decide.number(0, a.value.ndim - 1)]
        if name != "sum" and a.value.shape[dims[0]] == 0:
            return False
        return self.emit(name, a.value, dims, exact=a.exact and name != "sum")

    def scan(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim > 0 and k.value.dtype in (F32, F64, I64))
        if a is None:
            return False
        return self.emit("cumsum", a.value, self.decide.number(0, a.value.ndim - 1), exact=False)

    def permute(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim > 1)
        if a is None:
            return False
        turn = self.decide.number(1, a.value.ndim - 1)
        dims = [(d + turn) % a.value.ndim for d in range(a.value.ndim)]
        return self.emit("permute", a.value, dims, exact=a.exact)

    def flatten(self) -> bool:
        a = self.any_of(lambda k: True)
        if a is None:
            return False
        return self.emit("reshape", a.value, [a.value.numel()], exact=a.exact)

    def broadcast(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim < 3)
        if a is None:
            return False
        shape = [self.pick(_SIZES[:2]), *a.value.shape]
        dims = list(range(1, len(shape)))
        return self.emit("broadcast_in_dim", a.value, shape, dims, exact=a.exact)

    def part(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim > 0)
        if a is None:
            return False
        start = [self.decide.number(0, min(1, n)) for n in a.value.shape]
        step = [self.decide.number(1, 2) for _ in a.value.shape]
        return self.emit("slice", a.value, start, list(a.value.shape), step, exact=a.exact)

    def pad(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim > 0)
        if a is None:
            return False
        low = [self.decide.number(0, 1) for _ in a.value.shape]
        return self.emit("pad", a.value, low, low[::-1], 1, exact=a.exact)

    def join(self) -> bool:
        pair = self._two(lambda k: k.value.ndim > 0)
        if pair is None:
            return False
        dim = self.decide.number(0, pair[0].value.ndim - 1)
        exact = pair[0].exact and pair[1].exact
        return self.emit("cat", [k.value for k in pair], dim, exact=exact)

    def flip(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim > 0)
        if a is None:
            return False
        return self.emit("flip", a.value, [self.decide.number(0, a.value.ndim - 1)], exact=a.exact)

    def product(self) -> bool:
        a = self.any_of(lambda k: k.value.ndim == 2 and k.value.dtype in (F32, F64))
        if a is None:
            return False
        dtype, inner = a.value.dtype, a.value.shape[1]
        b = self.any_of(
            lambda k: k.value.ndim == 2 and k.value.dtype == dtype and k.value.shape[0] == inner
        )
        return b is not None and self.emit("mm", a.value, b.value, exact=False)

    def copy(self) -> bool:
        a = self.any_of(lambda k: True)
        return a is not None and self.emit("clone", a.value, exact=a.exact)


_STEPS: tuple[Callable[[_Growing], bool], ...] = (
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
        _STEPS[decisions.number(0, len(_STEPS) - 1)](growing)
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
