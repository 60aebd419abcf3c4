"""Computed buffers: the iteration space and reads of one value.

In: an anchor of a `MaterializationPlan`. Out: `ComputedBuffer`. Invariant: `reads` are exactly the
elements of memory that computing one element (or one term of a reduction) takes, in the coordinates
`d0, d1, ...` of the node (of its base, for a reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau_inductor.indexing import Expr, Ranges, Size, decide_equal, decide_less, simplify
from flambeau_inductor.ir.loops import Point
from flambeau_inductor.ir.tensors import (
    Index,
    Node,
    Reduction,
    Scatter,
    Shape,
    TensorScan,
    dim_ranges,
    dims_of,
    dot,
    flat_strides,
)
from flambeau_inductor.schedule.fuse.emit import Emitter
from flambeau_inductor.schedule.materialize.plan import MaterializationPlan, NodeStorage

Block = tuple[Size, bool]
"""Size, and whether it is reduced."""


@dataclass(frozen=True, slots=True, eq=False)
class ComputedBuffer:
    """An anchor before it is in any loop."""

    node: Node
    shape: Shape
    """Of the space iterated over: the node's, or its base's for a reduction."""

    blocks: tuple[Block, ...]
    """The space with sizes of 1 dropped and neighbours of one kind merged."""

    reads: dict[Node, list[Index]]
    ops: int
    ranges: Ranges
    position: int
    memory: Node
    """The node whose memory its elements go to."""

    @property
    def numel(self) -> Size:
        """Points of the whole space."""
        return size_of(self.blocks, None)

    @property
    def rows(self) -> Size:
        """Points that are not reduced."""
        return size_of(self.blocks, False)

    @property
    def reduces(self) -> bool:
        return any(reduced for _, reduced in self.blocks)

    @property
    def scatters(self) -> bool:
        """Whether its elements are stored where others may be."""
        return isinstance(self.node.define, Scatter)

    @property
    def scans(self) -> bool:
        """Whether its elements are those of its whole space, though that has an order."""
        return isinstance(self.node.define, TensorScan)

    def coordinates(self) -> Index:
        return coordinates_of(self.shape)

    def flat(self) -> Expr:
        """Row-major position in the whole space."""
        return dot(self.coordinates(), flat_strides(self.shape))


def coordinates_of(shape: Shape) -> Index:
    """`(d0, d1, ...)`, with 0 where a dimension has but one position."""
    return tuple(
        d if decide_less(1, size) else d * 0
        for d, size in zip(dims_of(len(shape)), shape, strict=True)
    )


def size_of(blocks: tuple[Block, ...], reduced: bool | None) -> Size:
    """Product of the sizes of one kind (None: of all)."""
    total: Size = 1
    for size, kind in blocks:
        if reduced is None or kind == reduced:
            total *= size
    return total


def blocks_of(shape: Shape, reduced: frozenset[int]) -> tuple[Block, ...]:
    """Merge a space's dimensions into blocks."""
    blocks: list[Block] = []
    for d, size in enumerate(shape):
        if decide_equal(size, 1):
            continue
        kind = d in reduced
        if blocks and blocks[-1][1] == kind:
            blocks[-1] = (blocks[-1][0] * size, kind)
        else:
            blocks.append((size, kind))
    return tuple(blocks)


def row_flat(flat: Expr, blocks: tuple[Block, ...], ranges: Ranges) -> Expr:
    """Row-major position among the rows, from the position in the whole space."""
    result: Expr = flat * 0
    step = size_of(blocks, None)
    row_step = size_of(blocks, False)
    for position, (size, reduced) in enumerate(blocks):
        step //= size
        if reduced:
            continue
        row_step //= size
        own = flat // step
        if position:
            own = own % size
        result = result + simplify(own, ranges) * row_step
    return simplify(result, ranges)


def analyse(plan: MaterializationPlan, node: Node, position: int) -> ComputedBuffer:
    """Emit the anchor on its own and note what it reads."""
    define = node.define
    if isinstance(define, Reduction):
        shape, reduced = define.base.shape, frozenset(define.dims)
    elif isinstance(define, Scatter):
        shape, reduced = define.src.shape, frozenset()
    elif isinstance(define, TensorScan):
        shape, reduced = node.shape, frozenset((define.dim,))
    else:
        shape, reduced = node.shape, frozenset()
    ranges = dict(dim_ranges(shape))

    def where(other: Node) -> NodeStorage | None:
        if other is node or not plan.has_memory(other):
            return None
        return NodeStorage(other.name, plan.graph.stride_of(other))

    emitter = Emitter(where, ranges)
    own = shape if isinstance(define, Scatter) else node.shape
    emitter.member(node, coordinates_of(shape), coordinates_of(own))
    reads: dict[Node, list[Index]] = {}
    if isinstance(define, Scatter):
        reads[define.base] = [coordinates_of(node.shape)]
    for other, index in emitter.reads:
        found = reads.setdefault(other, [])
        if index not in found:
            found.append(index)
    ops = sum(isinstance(i, Point) for i in emitter.body)
    blocks = blocks_of(shape, reduced)
    memory = plan.memory_of(node)
    return ComputedBuffer(node, shape, blocks, reads, ops, dict(ranges), position, memory)
