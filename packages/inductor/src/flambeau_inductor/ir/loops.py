"""The loop IR: an iteration space and a straight list of instructions.

In: nothing (these are the data). Out: `Loop`, which C++ and Triton code generation both read.
Invariant: instructions are in SSA form; an operand is the position of an earlier instruction, and
nothing but `Store` and `Check` has an effect.

Meaning of a `Loop`: for every point of the outer axes `x` the body runs; an instruction that
depends on a reduction axis (`r`) has one value per point of `x` times `r` ("element" values), all
others one value per point of `x` ("row" values). `Reduce` turns an element value into a row value,
combining over all of `r`. A row value may be used together with element values: it is the same
for every point of `r`. How many passes over `r` that takes (max, then sum, then scale for a
softmax) is for code generation to decide: `Reduce`s that feed each other need separate passes
unless a row is kept in registers, independent ones share a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flambeau_inductor.indexing import Expr

ValueId = int
Scalar = bool | int | float


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop variable running over `range(size)`; `x` axes are listed outermost first."""

    var: str
    size: int | Expr


@dataclass(frozen=True, slots=True)
class Load:
    """Element `index` (in elements from the buffer's data pointer) of `buffer`.

    `index` may contain variables named `%<id>`: the integer value of that earlier instruction
    (gather). With `mask`, the element is read only where that bool value is true, else `other`.
    """

    buffer: str
    index: Expr
    dtype: torch.dtype
    mask: ValueId | None = None
    other: Scalar = 0


@dataclass(frozen=True, slots=True)
class Const:
    """A literal of `dtype`."""

    value: Scalar
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class IndexValue:
    """The value of an index expression as a number of `dtype` (iota, masks, argmax)."""

    index: Expr
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Point:
    """A pointwise primitive by its name in the prims dialect (`add`, `where`, `cast`, ...).

    `dtype` is the result's. Operands have the primitive's dtypes.
    """

    op: str
    args: tuple[ValueId, ...]
    dtype: torch.dtype


RANDOM = frozenset({"philox_uniform", "philox_normal", "philox_bits"})
"""Pointwise primitives of a seed and a position (int64 both), whatever the result's dtype."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine `arg` over all `r` axes.

    Kinds: `sum`, `prod`, `max`, `min` (NaN wins), `any`, `all`, `argmax`, `argmin` (first winner,
    NaN wins; int64 position in the row-major order of `r`), `welford` (two parts: mean and the
    sum of squared deviations). `dtype` is that of the result (of each part); half-precision sums
    are never formed: the lowering casts first.
    """

    kind: str
    arg: ValueId
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Scan:
    """`arg` combined with its values at all earlier points of the `r` axes, in row-major order.

    An element value. Kinds: `sum`, `prod`, `logsumexp`. `dtype` is that of `arg`; half-precision
    sums are never formed.
    """

    kind: str
    arg: ValueId
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class ReducePart:
    """Part `position` of a `Reduce` with several results."""

    arg: ValueId
    position: int
    dtype: torch.dtype


COMBINING = frozenset({"add", "mul", "max", "min"})
"""Modes of a store whose result depends on how often it is done, or on what was there."""


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` to element `index` of `buffer`.

    Modes: `set`; `add`, `mul`, `max`, `min` combine with what is there (NaN wins; on a GPU atomic,
    in any order); `total` writes the sum of the value, in float32, over the innermost `x` axis,
    which the index is free of (on a GPU only, where a program takes rows in turn). A row value is
    stored once per point of `x`. Where points may meet in one element they are taken in the order
    of the axes; those that differ in one of the expressions `apart` never meet.

    What combines counts every point of the loop, which has no `r`, also along axes that change
    neither the address nor the value: `count` says how many there are.
    """

    buffer: str
    index: Expr
    value: ValueId
    mode: str = "set"
    apart: tuple[Expr, ...] = ()
    count: int | Expr | None = None

    @property
    def combines(self) -> bool:
        """Whether each point changes what is there, so that none may be left out or repeated."""
        return self.mode in COMBINING

    @property
    def scattered(self) -> bool:
        """Whether the address is looked up, so that points may meet."""
        return bool(looked_up(self.index))


def looked_up(index: Expr) -> tuple[ValueId, ...]:
    """The instructions whose values an index expression is made of."""
    return tuple(int(v[1:]) for v in index.vars if v.startswith("%"))


@dataclass(frozen=True, slots=True)
class Check:
    """The program fails with `message` if the bool `arg` is false at some point.

    A GPU's kernel ends there; one of a CPU leaves the point out, and says so when it is done.

    What reads memory through a value that is checked comes later in the body.
    """

    arg: ValueId
    message: str
    dtype: torch.dtype = torch.bool


Instr = Load | Const | IndexValue | Point | Reduce | Scan | ReducePart | Store | Check


@dataclass(frozen=True, slots=True)
class Loop:
    """One kernel. `origins` names the graph nodes it computes, for listings and debugging.

    With `points`, which a loop of two outer axes and constant sizes may have, only the first so
    many points of `x` are there, counted along the second axis first: some for each value of the
    first.
    """

    name: str
    x: tuple[Axis, ...]
    r: tuple[Axis, ...]
    body: tuple[Instr, ...]
    origins: tuple[str, ...] = ()
    points: int | None = None


def buffers_of(loop: Loop) -> set[str]:
    """Names of the buffers that a loop touches."""
    return {i.buffer for i in loop.body if isinstance(i, Load | Store)}


def axes_of(loop: Loop, instr: Instr) -> frozenset[str]:
    """The axes of `loop` that an instruction changes along by itself, not by its operands: those in
    its index, and for a store that combines all of them, for each point of the loop is counted."""
    axes = frozenset(a.var for a in (*loop.x, *loop.r))
    if isinstance(instr, Store) and instr.combines:
        return axes
    if isinstance(instr, Load | Store | IndexValue):
        return instr.index.vars & axes
    return frozenset()


def spans(loop: Loop) -> tuple[tuple[range, ...], ...]:
    """The outer points of a loop of constant sizes: boxes, each a range of values for every axis.

    Raises:
        TypeError: a size is a symbol.
    """
    sizes = tuple(axis.size for axis in loop.x if isinstance(axis.size, int))
    if len(sizes) != len(loop.x):
        raise TypeError(f"{loop.name}: symbolic sizes {loop.x}")
    if loop.points is None:
        return (tuple(range(size) for size in sizes),)
    full, left = divmod(loop.points, sizes[1])
    boxes = [(range(full), range(sizes[1]))] if full else []
    return (*boxes, (range(full, full + 1), range(left))) if left else tuple(boxes)


EXACT = {torch.bfloat16: 1 << 8, torch.float16: 1 << 11, torch.float32: 1 << 24}
"""All whole numbers up to this, of either sign, are numbers of such a dtype."""


def holds(dtype: torch.dtype, least: int, largest: int) -> bool:
    """Whether a dtype has all whole numbers of a range, exactly."""
    if dtype in EXACT:
        return max(-least, largest) <= EXACT[dtype]
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return dtype == torch.bool and least >= 0 and largest <= 1
    info = torch.iinfo(dtype)
    return info.min <= least and largest <= info.max
