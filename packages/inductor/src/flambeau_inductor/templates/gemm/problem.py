"""The matrix product problem, as data, and the operands of the library calls that it is read from.

In: arguments of a call and the layouts of all buffers. Out: `Matrix` (where an operand lies),
`Product` (what is multiplied), `Window` (the left operand is read from images), `Groups` (there are
several, one after the other). Invariant: sizes and strides are numbers, in elements, of what lies
on a GPU and has no open size; where groups end the device alone knows.

Alignment of matrix products: where the library is slow, and the seconds of each alternative. In:
sizes of a product. Out: seconds by the model of the machine. Invariant: what the model says of an
unmeasured product is the same for the pass that pads and for the selection of templates. The
library multiplies half precision at full speed where the three matrices are made of whole pieces of
16 bytes: of each, the extent of the dimension that is contiguous in memory and the step to the next
row of it. The template needs that of the steps of its operands alone (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import torch

from flambeau_inductor.ir.program import Argument, Layout, Ref
from flambeau_inductor.templates.gemm.tiles import GemmShape, candidates, seconds
from flambeau_inductor.tuning import Tuning
from flambeau_inductor.tuning.machine import MMA_DEPTH


@dataclass(frozen=True, slots=True)
class Matrix:
    """Memory of an operand: strides along batch, rows and columns, in elements."""

    buffer: str
    strides: tuple[int, int, int]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The rows of the left operand are windows of images, one for each point of the result: along
    the inner dimension point by point, row by row, and of each its channels. Pairs are (down,
    across). In a `depthwise` convolution each channel of the result is made of the same one of the
    images. `strides` are of the images: batch, channel, down, across; `taps` of the weights:
    channel, down, across."""

    channels: int
    image: tuple[int, int]
    result: tuple[int, int]
    kernel: tuple[int, int]
    step: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    strides: tuple[int, int, int, int]
    taps: tuple[int, int, int]
    depthwise: bool = False

    @property
    def points(self) -> int:
        return prod(self.kernel)

    @property
    def whole_points(self) -> bool:
        """Whether a step of the inner dimension stays within one point of the window."""
        return self.channels >= MMA_DEPTH or self.depthwise

    @property
    def runs(self) -> int:
        """Into how many runs of equal length the inner dimension falls; a step stays in one."""
        return self.points if self.whole_points else 1

    @property
    def inside(self) -> bool:
        """Whether no window reaches over the edge of its image."""
        return not any(self.padding)


@dataclass(frozen=True, slots=True)
class Groups:
    """`count` products whose rows, columns or inner dimensions follow each other. `ends` (int32,
    one a group, ascending) says where each ends; after the last nothing is multiplied, and rows and
    columns of the result are zeros. An operand's stride along the batch is from group to group, 0
    for one that all groups lie in."""

    ends: Matrix
    count: int
    along: Literal["rows", "columns", "inner"]


@dataclass(frozen=True, slots=True)
class Packed:
    """Elements of the right operand are numbers of four bits, less `zero`, eight in each 32 bits
    along the inner dimension, by the scale of a column and of `group` terms. `scales`: strides are
    0, of groups and of columns."""

    scales: Matrix | None
    group: int
    zero: int


@dataclass(frozen=True, slots=True)
class Product:
    """`alpha * a @ b + beta * added`; `sizes` are batch, rows, columns and inner dimension. With a
    `window`, `a` says where the images begin, and `b` the stride of the weights' columns. With
    `groups` the sizes are those of all together; the batch is 1, or the groups where they share the
    inner dimension. `stored`: what the elements of `b` are in memory, if they are widened where
    they are read. With `packed`, strides of `b` are in units of 32 bits."""

    a: Matrix
    b: Matrix
    sizes: tuple[int, int, int, int]
    dtype: torch.dtype
    added: Matrix | None = None
    alpha: float = 1.0
    beta: float = 1.0
    tf32: bool = False
    window: Window | None = None
    groups: Groups | None = None
    stored: torch.dtype | None = None
    packed: Packed | None = None

    @property
    def operands(self) -> tuple[Matrix, ...]:
        ends = None if self.groups is None else self.groups.ends
        scales = None if self.packed is None else self.packed.scales
        some = (self.a, self.b, self.added, ends, scales)
        return tuple(each for each in some if each is not None)

    @property
    def outer(self) -> tuple[int, int, int]:
        return self.sizes[:3]

    @property
    def multiplications(self) -> int:
        groups = self.groups
        shared = groups.count if groups is not None and groups.along == "inner" else 1
        return prod(self.sizes) // shared

    @property
    def runs(self) -> int:
        return 1 if self.window is None else self.window.runs

    def padded(self, depth: int) -> int:
        """The inner dimension in whole steps of `depth`, each within one run."""
        run = self.sizes[3] // self.runs
        return self.runs * -(-run // depth) * depth


Static = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides and offset, in elements."""


def layout_of(argument: Argument, layouts: Mapping[str, Layout]) -> Layout | None:
    """The layout as which the argument is seen; None if it is no tensor."""
    if not isinstance(argument, Ref):
        return None
    return argument.layout or layouts[argument.buffer]


def dtype_of(argument: Argument, layouts: Mapping[str, Layout]) -> torch.dtype | None:
    """Its dtype; None if it is no tensor."""
    layout = layout_of(argument, layouts)
    return None if layout is None else layout.dtype


def static_of(argument: Argument, layouts: Mapping[str, Layout]) -> Static | None:
    """Its layout in numbers."""
    layout = layout_of(argument, layouts)
    if layout is None or layout.device.type != "cuda":
        return None
    try:
        return layout.static()
    except TypeError:  # a size is open
        return None


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor that is dense, the last dimension first."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def matrix_of(argument: Argument, static: Static) -> Matrix:
    """An operand of two dimensions, or of three with a batch."""
    assert isinstance(argument, Ref)
    _, strides, offset = static
    batch = strides[0] if len(strides) == 3 else 0
    return Matrix(argument.buffer, (batch, strides[-2], strides[-1]), offset)


PIECE = 16
"""Bytes of the largest load of a thread, and of what a tensor descriptor counts in."""


def missing(size: int, itemsize: int) -> int:
    """How many elements a row lacks to be made of whole pieces."""
    return -size % (PIECE // itemsize)


def library_seconds(shape: GemmShape, aligned: bool, tuning: Tuning) -> float:
    """What the library takes, with rows of whole pieces or without."""
    if not aligned and min(shape.rows, shape.columns) > 1:  # vectors are not for tensor units
        rate = tuning.tensor_operations * tuning.unaligned_share
        return _tiled(shape, replace(tuning, tensor_operations=rate))
    operations = 2 * shape.rows * shape.columns * shape.inner * shape.batch
    least = operations / (tuning.tensor_operations * tuning.machine.multiprocessors)
    return max(least, tuning.library_share * _tiled(shape, tuning))


def template_seconds(shape: GemmShape, tuning: Tuning) -> float:
    """What the template takes; rows that do not end with a piece are stored by the element."""
    odd = missing(shape.columns, shape.itemsize) > 0
    stored = shape.batch * shape.rows * shape.columns * shape.itemsize if odd else 0
    return _tiled(shape, tuning) + stored / tuning.memory_rate


def copy_seconds(elements: int, itemsize: int, tuning: Tuning) -> float:
    """What a copy takes, its launch included."""
    return tuning.launch + 2 * elements * itemsize / tuning.memory_rate


def _tiled(shape: GemmShape, tuning: Tuning) -> float:
    described = tuning.machine.described
    some = candidates(shape, 2, described=described, tuning=tuning)  # of both kinds
    return min((seconds(tile, shape, tuning) for tile in some), default=tuning.program_start)
