"""Score of a fusion: memory traffic saved.

In: two groups. Out: bytes; zero where there is nothing to gain. Invariant: what is shared counts
only if a point of the joint space reads the same element for both (not if one goes by rows and the
other by columns); that is sampled at a few points, and may only make a score too high.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau_inductor.indexing import IntegerConstant, Size, hint, is_open
from flambeau_inductor.ir.tensors import Node, dot, flat_strides
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.fuse.legality import (
    Block,
    ComputedBuffer,
    FusionGroup,
    is_whole,
    joint_space,
    size_of,
)


def saved_bytes(
    a: FusionGroup, b: FusionGroup, read_elsewhere: Callable[[Node], bool], limits: Limits
) -> int:
    """Reads shared, reads of each other's values, and writes that nobody else needs."""
    linked = False
    shared = {node: min(a.reads[node], b.reads[node]) for node in a.reads.keys() & b.reads.keys()}
    total = sum(shared.values())
    for made, reader in ((a, b), (b, a)):
        for node in made.nodes() & reader.reads.keys():
            linked = True
            total += reader.reads[node]
            if not read_elsewhere(node):
                total += node.nbytes
    if linked:
        return total
    least = min(_moved(a), _moved(b))
    blocks = joint_space(a, b)
    if total * limits.shared_fraction >= least and blocks is not None:
        total = sum(size for node, size in shared.items() if meet(a, b, node, blocks))
    return total if total * limits.shared_fraction >= least else 0


def _moved(group: FusionGroup) -> int:
    return sum(group.reads.values()) + sum(m.node.nbytes for m in group.members)


SHARES = (3, 7, 11)
"""Points are looked at this deep (in sixteenths) in the space, and some more: neither its corners
nor the beginning of a row, where different orders meet."""


def meet(a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...]) -> bool:
    """Whether the groups, in a space of `blocks`, read the same elements of `node` at a point."""
    sizes = (*node.shape, *(size for size, _ in blocks))
    if is_open(sizes) or _same_reads(a, b, node, blocks):
        return True
    points = hint(size_of(blocks, None))
    for number, share in enumerate(SHARES if points else ()):
        at = (points * share // 16 + number + 1) % points
        first, second = _read(a, node, blocks, at), _read(b, node, blocks, at)
        if first is not None and second is not None and first.isdisjoint(second):
            return False
    return True


def _same_reads(a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...]) -> bool:
    """Whether two anchors of one shape read `node` by the same index, as most do."""
    others = [anchor for anchor in b.members if node in anchor.reads]
    return any(
        one.shape == other.shape
        and is_whole(one, blocks) == is_whole(other, blocks)
        and one.reads[node] == other.reads[node]
        for one in a.members
        if node in one.reads
        for other in others
    )


def _read(group: FusionGroup, node: Node, blocks: tuple[Block, ...], at: int) -> set[int] | None:
    """Which elements of `node` a group reads at a point; None where they are looked up."""
    stride = flat_strides(node.shape)
    found: set[int] = set()
    for anchor in group.members:
        if node not in anchor.reads:
            continue
        place = _coordinates(anchor, blocks, at)
        for index in anchor.reads[node]:
            position = dot(index, stride).substitute(place)
            if not isinstance(position, IntegerConstant):
                return None
            found.add(position.value)
    return found


def _coordinates(anchor: ComputedBuffer, blocks: tuple[Block, ...], at: int) -> dict[str, int]:
    if not is_whole(anchor, blocks):
        digits = _digits(at, [size for size, _ in blocks])
        at = 0
        for digit, (size, reduced) in zip(digits, blocks, strict=True):
            at = at if reduced else at * hint(size) + digit
    return {f"d{d}": digit for d, digit in enumerate(_digits(at, anchor.shape))}


def _digits(flat: int, shape: Sequence[Size]) -> tuple[int, ...]:
    digits = []
    for size in map(hint, reversed(shape)):
        digits.append(flat % size)
        flat //= size
    return tuple(reversed(digits))
