"""The tensor graph: one node per tensor value, before materialisation.

In: lowering. Out: the schedule reads it. Invariant: a definition speaks of the node's own element
at the position `(d0, d1, ...)`; every other node it mentions was made earlier.

`View`, `Choose` and `Gather` say by index expressions where an element comes from, so that shape
operations cost nothing and disappear into the addresses of whoever reads through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import torch

from flambeau_inductor.indexing import (
    Expr,
    Ranges,
    Size,
    Var,
    add,
    as_expr,
    at_least,
    decide_equal,
    hint,
    is_long,
    simplify,
)
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.program import (
    ComputedNumber,
    Layout,
    PlainArgument,
    SizeOfResult,
    SymbolSource,
)
from flambeau_inductor.runtime.report import Fallback

Shape = tuple[Size, ...]

Index = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A runtime input, by its position in the boxed list."""

    position: int


@dataclass(frozen=True, slots=True)
class Attribute:
    """A tensor that the graph module holds (`get_attr`)."""

    name: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class Literal:
    """Every element is `value`."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Position:
    """The element is the value of `index` (an integer), converted to the node's dtype."""

    index: Expr


@dataclass(frozen=True, slots=True)
class Pointwise:
    """`op` of the elements of `args` at the same position; all have this node's shape.

    `clone` is the identity, but a value with memory of its own.
    """

    op: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The element of `base` at `index`."""

    base: Node
    index: Index


@dataclass(frozen=True, slots=True)
class IndexCondition:
    """`index < bound` (`lt`), `index >= bound` (`ge`) or `index == bound` (`eq`)."""

    op: str
    index: Expr
    bound: Size


@dataclass(frozen=True, slots=True)
class Choose:
    """The first branch whose guards all hold, else `other`.

    A branch is not read (no memory is touched) where its guards do not hold.
    """

    branches: tuple[tuple[tuple[IndexCondition, ...], Node], ...]
    other: Node
    joined: Joined | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """What a `Choose` amounts to, where it does: `pieces` one after another along `dim`."""

    pieces: tuple[Node, ...]
    dim: int


@dataclass(frozen=True, slots=True)
class IndexLookup:
    """The integer element of `node` at `index`, used as a position along a dimension of `size`.

    With `wrap`, a negative one counts from the end.
    """

    node: Node
    index: Index
    size: Size
    wrap: bool


@dataclass(frozen=True, slots=True)
class Gather:
    """The element of `base` whose coordinates are expressions or looked up."""

    base: Node
    index: tuple[Expr | IndexLookup, ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """`base` with each element of `src` combined (by a mode of `ir.loops.Store`) into the element
    whose coordinates are expressions of its position, or looked up.

    `base` is read by nobody else: its memory becomes this node's. Elements of `src` that meet are
    taken in row-major order.
    """

    base: Node
    index: tuple[Expr | IndexLookup, ...]
    src: Node
    mode: str


@dataclass(frozen=True, slots=True)
class Reduction:
    """`kind` (of `ir.loops.Reduce`) over the dimensions `dims` of `base`; `part` of its results."""

    kind: str
    base: Node
    dims: tuple[int, ...]
    part: int | None = None


@dataclass(frozen=True, slots=True)
class TensorScan:
    """`kind` (of `ir.loops.Scan`) of the elements of `base` up to this one along `dim`, formed in
    the dtype of `base` and then converted."""

    kind: str
    base: Node
    dim: int


@dataclass(frozen=True, slots=True)
class Result:
    """Result `position` of a library call."""

    call: LibraryCall
    position: int


Definition = (
    Input
    | Attribute
    | Literal
    | Position
    | Pointwise
    | View
    | Choose
    | Gather
    | Scatter
    | Reduction
    | TensorScan
    | Result
)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A tensor value; equality is identity.

    `stride` is where its elements go if it gets memory, unless the graph's `strides` say otherwise.
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    device: torch.device
    define: Definition
    stride: Shape
    origins: tuple[str, ...] = ()

    @property
    def numel(self) -> Size:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, at the sizes of this compile: an estimate where one is open."""
        return hint(self.numel) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{self.name}: {str(self.dtype).removeprefix('torch.')}{list(self.shape)}>"


@dataclass(frozen=True, slots=True, eq=False)
class NumberTensor:
    """A number known when the program runs: a tensor of it, and itself for library calls."""

    node: Node
    value: ComputedNumber


Argument = Node | NumberTensor | PlainArgument | tuple["Argument", ...]
"""Argument of a library call: like `ir.program.Argument` with nodes in place of references."""


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Every element of a node must address a dimension of `size` (see `program.CheckIndex`): of the
    part that `layout` shows, if it is planned."""

    size: Size
    wrap: bool
    error: str
    message: str
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """A library call on tensors in memory; equality is identity.

    `out`: the overload writes to given tensors, which have the layouts of the result nodes.
    `any_strides`: operands may come in any strides, so copies that only reorder are looked through.
    `aliases`: results may share memory with operands. `impure`: runs even if nobody uses it.
    """

    name: str
    target: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()
    out: bool = False
    any_strides: bool = False
    impure: bool = False
    aliases: bool = False
    origins: tuple[str, ...] = ()


@dataclass(slots=True)
class TensorGraph:
    """A lowered graph. `order` lists nodes and calls as the program had them; `lowered`, the
    primitive and the node of each operation that a rule lowered, views left out; `absorbed`,
    library calls and the last operation after them that is part of them; `donated`, inputs that may
    be overwritten; `updates`, outputs that may be written where an input is, and the input;
    `sized`, the sizes that are known once a call has run; `seen`, the strides of views as metadata
    have them, also of dimensions whose steps nobody takes."""

    name: str
    inputs: list[Node] = field(default_factory=list)
    order: list[Node | LibraryCall] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    checks: dict[Node, list[IndexCheck]] = field(default_factory=dict)
    results: dict[LibraryCall, list[Node | None]] = field(default_factory=dict)
    fallbacks: list[Fallback] = field(default_factory=list)
    lowered: list[tuple[str, str]] = field(default_factory=list)
    absorbed: list[tuple[str, str]] = field(default_factory=list)
    strides: dict[Node, Shape] = field(default_factory=dict)
    seen: dict[Node, Shape] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    donated: frozenset[int] = frozenset()
    updates: dict[int, int] = field(default_factory=dict)
    symbols: tuple[tuple[str, SymbolSource], ...] = ()
    scalars: list[NumberTensor] = field(default_factory=list)
    sized: dict[LibraryCall, tuple[SizeOfResult, ...]] = field(default_factory=dict)

    def devices(self) -> Iterator[torch.device]:
        """Where its tensors are."""
        return (n.device for n in (*self.inputs, *self.order) if isinstance(n, Node))

    def stride_of(self, node: Node) -> Shape:
        """Strides of the memory that `node` gets, if it gets any."""
        return self.strides.get(node, node.stride)

    def layout(self, node: Node) -> Layout:
        """The memory that `node` gets, if it gets any."""
        return Layout(node.shape, self.stride_of(node), node.dtype, node.device)


@dataclass(frozen=True, slots=True)
class Output:
    """A graph output: a node to be returned with exactly `stride`, or a literal."""

    value: Node | Scalar | None
    stride: Shape = ()


def dims_of(rank: int) -> tuple[Var, ...]:
    """`(d0, d1, ...)`: the position that a definition speaks of."""
    return tuple(_DIMS[i] if i < len(_DIMS) else Var(f"d{i}") for i in range(rank))


_DIMS: tuple[Var, ...] = tuple(Var(f"d{i}") for i in range(16))


def dim_ranges(shape: Sequence[Size]) -> Ranges:
    """The range of each of `dims_of`."""
    return {f"d{i}": (0, at_least(size - 1, 0)) for i, size in enumerate(shape)}


def at(index: Index, position: Index) -> Index:
    """`index`, which speaks of `(d0, ...)`, at `position`."""
    mapping = {f"d{i}": p for i, p in enumerate(position)}
    return tuple(e.substitute(mapping) for e in index)


def viewed(base: Node, index: Index, ranges: Ranges | None = None) -> View:
    """The view of `base` at `index`, or of what that is a view of. Without `ranges` its map is kept
    as written."""
    if not isinstance(base.define, View):
        return View(base, index)
    through = at(base.define.index, index)
    moved = through if ranges is None else tuple(simplify(e, ranges) for e in through)
    return View(base.define.base, moved)


def spread(shape: Sequence[Size], index: Sequence[Expr]) -> Index:
    """`index`, but 0 along dimensions of one element, which are repeated."""
    pairs = zip(shape, index, strict=True)
    return tuple(as_expr(0) if decide_equal(size, 1) else e for size, e in pairs)


def flat_strides(shape: Sequence[Size]) -> Shape:
    """Row-major strides."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step *= at_least(size, 1)
    return tuple(reversed(strides))


def dot(index: Sequence[Expr], stride: Sequence[Size], offset: Size = 0) -> Expr:
    """`sum(index[i] * stride[i]) + offset`."""
    parts = [position * step for position, step in zip(index, stride, strict=True) if step]
    return add((*parts, as_expr(offset)))


def unflatten(flat: Expr, shape: Sequence[Size], ranges: Ranges) -> Index:
    """The coordinates in `shape` of the row-major position `flat`."""
    coordinates: list[Expr] = []
    outermost = True
    for size, step in zip(shape, flat_strides(shape), strict=True):
        if not is_long(size):
            coordinates.append(as_expr(0))
            continue
        quotient = flat // step
        coordinates.append(simplify(quotient if outermost else quotient % size, ranges))
        outermost = False
    return tuple(coordinates)
