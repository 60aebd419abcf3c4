"""Access order: do two groups traverse a tensor alike?

In: two groups, and a tensor that both read. Out: whether a point of their joint space would read
one element for both. Invariant: looked at in a few points, it may say yes where it is no, and then
only the score of a fusion is too high: what is computed does not depend on it.

Groups of equally many points can share a loop whatever they compute. If one goes through a tensor
by rows and the other by columns nothing is read once instead of twice, and the addresses of one of
them are quotients and remainders of the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flambeau_inductor.indexing import IntegerConstant, Size, hint, is_open
from flambeau_inductor.ir.tensors import Node, dot, flat_strides
from flambeau_inductor.schedule.fuse.legality import FusionGroup, is_element
from flambeau_inductor.schedule.materialize.computed_buffers import Block, ComputedBuffer, size_of

SHARES = (3, 7, 11)
"""Points are looked at this deep (in sixteenths) in the space, and some more: neither its corners
nor the beginning of a row, where different orders meet."""


def meet(a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...]) -> bool:
    """Whether the groups, in a space of `blocks`, read the same elements of `node` at a point."""
    sizes = (*node.shape, *(size for size, _ in blocks))
    if is_open(sizes) or _same_reads(a, b, node, blocks):
        return True
    points = hint(size_of(blocks, None))
    return points == 0 or all(_meet_at(a, b, node, blocks, at) for at in _samples(points))


def _same_reads(a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...]) -> bool:
    """Whether two anchors of one shape read `node` by the same index, as most do."""
    others = [anchor for anchor in b.members if node in anchor.reads]
    return any(
        one.shape == other.shape
        and _whole(one, blocks) == _whole(other, blocks)
        and one.reads[node] == other.reads[node]
        for one in a.members
        if node in one.reads
        for other in others
    )


def _whole(anchor: ComputedBuffer, blocks: tuple[Block, ...]) -> bool:
    """Whether an anchor goes through the whole space, rather than through its rows."""
    return anchor.reduces or is_element(anchor, blocks)


def _samples(points: int) -> Iterator[int]:
    for number, share in enumerate(SHARES):
        yield (points * share // 16 + number + 1) % points


def _meet_at(
    a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...], at: int
) -> bool:
    first, second = _read(a, node, blocks, at), _read(b, node, blocks, at)
    return first is None or second is None or not first.isdisjoint(second)


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
    """Where an anchor is at a point of the space."""
    if not _whole(anchor, blocks):
        digits = _digits(at, [size for size, _ in blocks])
        at = 0
        for digit, (size, reduced) in zip(digits, blocks, strict=True):
            at = at if reduced else at * hint(size) + digit
    return {f"d{d}": digit for d, digit in enumerate(_digits(at, anchor.shape))}


def _digits(flat: int, shape: Sequence[Size]) -> tuple[int, ...]:
    """The coordinates of a row-major position in a space of known sizes."""
    digits = []
    for size in map(hint, reversed(shape)):
        digits.append(flat % size)
        flat //= size
    return tuple(reversed(digits))
