"""Block dimensions of a Triton kernel: axes flattened, block sizes.

In: nothing (these are the data). Out: `Dimension`, `Tiling`. Invariant: every axis of a loop lies
in exactly one dimension of its tiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flambeau_inductor.codegen.triton.errors import TritonUnsupported
from flambeau_inductor.indexing import Expr
from flambeau_inductor.ir.loops import Axis


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes flattened into one block dimension, outermost first, and its block size. The last
    program of a `ragged` one has fewer points, a number that the kernel computes."""

    name: str
    axes: tuple[Axis, ...]
    block: int
    ragged: bool = False

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(static_size(axis) for axis in self.axes)

    @property
    def blocks(self) -> int:
        """How many blocks it takes."""
        return -(-self.size // self.block)

    @property
    def masked(self) -> bool:
        """Whether the last block hangs over the end."""
        return self.size == 0 or self.size % self.block != 0 or (self.ragged and self.block > 1)

    @property
    def end(self) -> str:
        """The number of points in a kernel."""
        return f"{self.name}_points" if self.ragged else str(self.size)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Block dimensions in the order of the tensor's axes inside a program, and warps.

    looped: a row is taken in steps, and read again after each reduction. held: it stays in
    registers as it was read, and what is computed from it is computed again after each reduction.
    registers: the most that a thread may have. parts: the outermost axis where each program has a
    part of the rows, or of some of their columns, to itself and takes them in turn, a block of `x`
    after the other, `stages` of them on their way at once.
    """

    dimensions: tuple[Dimension, ...]
    warps: int
    looped: bool = False
    held: bool = False
    registers: int | None = None
    parts: Axis | None = None
    stages: int = 1

    @property
    def programs(self) -> int:
        """Number of programs of a launch."""
        if self.parts is not None:
            columns = next(d for d in self.dimensions if d.name == "r")
            return static_size(self.parts) * columns.blocks
        return math.prod(d.blocks for d in self.dimensions if d.name != "r")


def static_size(axis: Axis) -> int:
    """Length of an axis.

    Raises:
        TritonUnsupported: the length is a symbol.
    """
    if isinstance(axis.size, Expr):
        raise TritonUnsupported(f"the length of axis {axis.var} is a symbol: {axis.size}")
    return axis.size


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least `n` (1 for 0)."""
    return 1 << max(0, n - 1).bit_length()
