"""A fusion group as one loop.

In: a `FusionGroup`, and where each node's memory is. Out: a `Loop`. Invariant: every member is
computed once, at the coordinates that the group's axes give it; only members that someone outside
reads are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from flambeau_inductor.indexing import Expr, Ranges, Size, Var, hint, known, plain
from flambeau_inductor.ir.loops import Axis, Loop
from flambeau_inductor.ir.operands import pruned
from flambeau_inductor.ir.tensors import Node, Shape, dot, flat_strides, unflatten
from flambeau_inductor.schedule.fuse.emit import Emitter, Where
from flambeau_inductor.schedule.fuse.legality import FusionGroup, is_element
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.schedule.materialize.computed_buffers import Block, size_of


@dataclass(frozen=True, slots=True)
class Space:
    """A group's axes, outermost first, and the two row-major positions that they spell."""

    axes: tuple[tuple[str, Size, bool], ...]
    element: Expr
    row: Expr

    def ranges(self) -> Ranges:
        return {name: (0, size - 1) for name, size, _ in self.axes}


def build_loop(name: str, group: FusionGroup, place: Where, stored: Callable[[Node], bool]) -> Loop:
    """Emit the members in order, store what is needed, bring the axes into their best order."""
    space = space_of(group)
    emitter = Emitter(place, dict(space.ranges()))
    for anchor in group.members:
        node = anchor.node
        whole = anchor.reduces or is_element(anchor, group.blocks)
        flat = space.element if whole else space.row
        coordinates = unflatten(flat, anchor.shape, emitter.ranges)
        own = coordinates
        if anchor.reduces and not anchor.scans:
            own = unflatten(space.row, node.shape, emitter.ranges)
        value = emitter.member(node, coordinates, own)
        if stored(node):
            emitter.store(node, own, value)
    x = tuple(Axis(n, s) for n, s, reduced in space.axes if not reduced)
    r = tuple(Axis(n, s) for n, s, reduced in space.axes if reduced)
    origins = tuple(dict.fromkeys(o for m in group.members for o in m.node.origins))
    return normalised(Loop(name, x, r, pruned(emitter.body), origins))


def space_of(group: FusionGroup) -> Space:
    """Split each block where a member's shape has a boundary."""
    cuts = _cuts(group)
    axes: list[tuple[str, Size, bool]] = []
    element_strides: list[Size] = []
    row_strides: list[Size] = []
    step, row_step = size_of(group.blocks, None), size_of(group.blocks, False)
    count = {False: 0, True: 0}
    for (size, reduced), inside in zip(group.blocks, cuts, strict=True):
        step //= size
        if not reduced:
            row_step //= size
        outer = size
        for cut in sorted(inside, key=hint, reverse=True):
            name = f"{'r' if reduced else 'x'}{count[reduced]}"
            count[reduced] += 1
            axes.append((name, outer // cut, reduced))
            element_strides.append(step * cut)
            row_strides.append(0 if reduced else row_step * cut)
            outer = cut
    index = tuple(Var(name) for name, _, _ in axes)
    return Space(tuple(axes), dot(index, element_strides), dot(index, row_strides))


def _cuts(group: FusionGroup) -> list[set[Size]]:
    """For each block the strides (within it) at which an axis ends; 1 is always one of them."""
    cuts: list[set[Size]] = [{1} for _ in group.blocks]
    for anchor in group.members:
        whole = anchor.reduces or is_element(anchor, group.blocks)
        _cut(cuts, group.blocks, anchor.shape, whole)
        if anchor.reduces and not anchor.scans:
            _cut(cuts, group.blocks, anchor.node.shape, False)
    return cuts


def _cut(cuts: list[set[Size]], blocks: tuple[Block, ...], shape: Shape, whole: bool) -> None:
    step: Size = 1
    spans: list[tuple[int, Size, Size]] = []
    for position in range(len(blocks) - 1, -1, -1):
        size, reduced = blocks[position]
        if reduced and not whole:
            continue
        spans.append((position, step, size))
        step *= size
    for boundary in flat_strides(shape):
        for position, start, size in spans:
            inside = plain(boundary // start)
            within = known("lt", 1, inside) and known("lt", inside, size)
            if within and known("eq", boundary % start, 0):
                chain = sorted({*cuts[position], inside, size}, key=hint)
                if all(known("eq", b % a, 0) for a, b in pairwise(chain)):
                    cuts[position].add(inside)  # type: ignore[arg-type]
