"""Fusion groups and the legality of a fusion.

In: anchors of a `MaterializationPlan`: their iteration spaces and reads. Out: None, or the reason
why two groups may not be one loop. Invariant: both iterate over the same space (one over all of it,
or over its rows only), and whatever one reads of the other is the very element computed at that
point.

The rules, in the order they are tried:

1. `device`: all on one device.
2. `space`: without reductions, equally many elements; with, the same reduced and kept blocks, and
   anything not reduced as large as the whole space ("element") or as its rows ("row").
3. `index`: reads between members are at the point's own position; a row never reads an element
   except through its reduction.
4. `size`: the body stays within the limits.
5. `row`: a row that is read again after its reduction fits in cache, with rows to share out.
6. `cycle` (checked by the caller, who knows the other groups): nothing outside both depends on
   one and feeds the other.
7. `communication` (checked by the caller too): of two that do not read each other, neither waits
   for a collective, nor holds up one, that the other has nothing to do with.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from flambeau_inductor.indexing import (
    Expr,
    Ranges,
    Size,
    decide_equal,
    hint,
    is_long,
    same,
    simplify,
)
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
from flambeau_inductor.scheduling_limits import Limits

Block = tuple[Size, bool]
"""Size, and whether it is reduced."""


class _IterationSpace:
    """What iterates over a space of blocks."""

    __slots__ = ()
    blocks: tuple[Block, ...]

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


@dataclass(frozen=True, slots=True, eq=False)
class ComputedBuffer(_IterationSpace):
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
    def scatters(self) -> bool:
        """Whether its elements are stored where others may be."""
        return isinstance(self.node.define, Scatter)

    @property
    def scans(self) -> bool:
        """Whether its elements are those of its whole space, though that has an order."""
        return isinstance(self.node.define, TensorScan)

    def flat(self) -> Expr:
        """Row-major position in the whole space."""
        return dot(coordinates_of(self.shape), flat_strides(self.shape))


def coordinates_of(shape: Shape) -> Index:
    """`(d0, d1, ...)`, with 0 where a dimension has but one position."""
    return tuple(
        d if is_long(size) else d * 0 for d, size in zip(dims_of(len(shape)), shape, strict=True)
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
    """Row-major position among the rows, from the position in the whole space.

    A space of no elements has no positions: all of its rows are at 0.
    """
    result: Expr = flat * 0
    if any(size == 0 for size, _ in blocks):
        return result
    step, row_step = size_of(blocks, None), size_of(blocks, False)
    for position, (size, reduced) in enumerate(blocks):
        step //= size
        if reduced:
            continue
        row_step //= size
        own = flat // step % size if position else flat // step
        result = result + simplify(own, ranges) * row_step
    return simplify(result, ranges)


def analyse(plan: MaterializationPlan, node: Node, position: int) -> ComputedBuffer:
    """Emit the anchor on its own and note what it reads."""
    define, shape, reduced = node.define, node.shape, frozenset[int]()
    if isinstance(define, Reduction):
        shape, reduced = define.base.shape, frozenset(define.dims)
    elif isinstance(define, Scatter):
        shape = define.src.shape
    elif isinstance(define, TensorScan):
        reduced = frozenset((define.dim,))
    ranges = dim_ranges(shape)

    def where(other: Node) -> NodeStorage | None:
        if other is node or not plan.has_memory(other):
            return None
        return NodeStorage(other.name, plan.graph.stride_of(other))

    emitter = Emitter(where=where, ranges=dict(ranges))
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
    return ComputedBuffer(
        node, shape, blocks_of(shape, reduced), reads, ops, ranges, position, plan.memory_of(node)
    )


@dataclass(slots=True, eq=False)
class FusionGroup(_IterationSpace):
    """Anchors that will be one loop."""

    number: int
    members: list[ComputedBuffer]
    blocks: tuple[Block, ...]
    reads: dict[Node, int] = field(default_factory=dict)
    """Bytes read of each node in memory, members included."""

    ops: int = 0
    bits: int = 0
    """Those of its members, one each."""

    before: int = 0
    """Bits of the groups and calls that must run earlier, transitively: one or more of each."""

    following: set[int] = field(default_factory=set)
    """The groups and calls that read what it computes."""

    def nodes(self) -> set[Node]:
        return {m.node for m in self.members}


def joint_space(a: FusionGroup, b: FusionGroup) -> tuple[Block, ...] | None:
    """The space of both, or None if they iterate over different ones."""
    if a.reduces and b.reduces:
        return a.blocks if same_blocks(a.blocks, b.blocks) else None
    if b.reduces:
        a, b = b, a
    fits = same(b.numel, a.numel) or (a.reduces and same(b.numel, a.rows))
    return a.blocks if fits else None


def same_blocks(a: tuple[Block, ...], b: tuple[Block, ...]) -> bool:
    """Whether two spaces are one."""
    return len(a) == len(b) and all(
        x[1] == y[1] and same(x[0], y[0]) for x, y in zip(a, b, strict=True)
    )


def is_element(anchor: ComputedBuffer, blocks: tuple[Block, ...]) -> bool:
    """Whether the anchor's value is one per point of the whole space (else one per row)."""
    return not anchor.reduces and same(anchor.numel, size_of(blocks, None))


def is_whole(anchor: ComputedBuffer, blocks: tuple[Block, ...]) -> bool:
    """Whether the anchor iterates over the whole space (else over its rows)."""
    return anchor.reduces or is_element(anchor, blocks)


def refusal(
    a: FusionGroup, b: FusionGroup, limits: Limits, checked: Container[Node] = ()
) -> str | None:
    """Why the loops of `a` and `b` may not be one (rules 1 to 5).

    `checked` are index tensors that must be complete, and checked, before anyone reads through
    them.
    """
    members = (*a.members, *b.members)
    if a.members[0].node.device != b.members[0].node.device:
        return "device: on different devices"
    if any(m.scatters for m in members):
        return "scatter: elements arrive where others may be"
    if any(m.scans for m in members):
        return "scan: elements are computed in their order"
    blocks = joint_space(a, b)
    if blocks is None:
        return f"space: {a.blocks} and {b.blocks}"
    if a.ops + b.ops > limits.loop_ops:
        return f"size: {a.ops} + {b.ops} ops"
    buffers = len(a.reads.keys() | b.reads.keys()) + len({m.memory for m in members})
    if buffers > limits.loop_buffers:
        return f"size: {buffers} buffers"
    again = False
    for producers, consumers in ((a, b), (b, a)):
        by_node = {m.node: m for m in producers.members}
        for consumer in consumers.members:
            for node in consumer.reads:
                producer = by_node.get(node)
                if producer is None:
                    continue
                if node in checked:
                    return f"index: {node.name} is checked before {consumer.node.name} reads it"
                if (reason := _read_refusal(producer, consumer, blocks)) is not None:
                    return reason
                again |= not is_element(producer, blocks) and is_whole(consumer, blocks)
    rows, length = hint(size_of(blocks, False)), hint(size_of(blocks, True))
    width = max(m.node.dtype.itemsize for m in members)
    allowed = limits.row_bytes if rows >= limits.few_rows else limits.single_row_bytes
    if again and length * width > allowed:
        return f"row: {length} elements are read again for each of {rows} rows"
    return None


def _read_refusal(
    producer: ComputedBuffer, consumer: ComputedBuffer, blocks: tuple[Block, ...]
) -> str | None:
    element = is_element(producer, blocks)
    if element and not is_whole(consumer, blocks):
        return f"index: row {consumer.node.name} reads element {producer.node.name}"
    wanted = consumer.flat()
    if not element and is_whole(consumer, blocks):  # its row
        wanted = row_flat(wanted, blocks, consumer.ranges)
    stride = flat_strides(producer.node.shape)
    for index in consumer.reads[producer.node]:
        got = simplify(dot(index, stride), consumer.ranges)
        if got != wanted:
            return f"index: {consumer.node.name} reads {producer.node.name} at {got}, not {wanted}"
    return None


def traffic(anchor: ComputedBuffer) -> dict[Node, int]:
    """Bytes read of each node in memory."""
    points = hint(anchor.numel)
    return {
        node: min(hint(node.numel), points * len(indices)) * node.dtype.itemsize
        for node, indices in anchor.reads.items()
    }
