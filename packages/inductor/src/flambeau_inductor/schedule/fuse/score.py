"""Score of a fusion: memory traffic saved.

In: two groups. Out: bytes. Invariant: zero means that there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau_inductor.ir.tensors import Node
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.fuse.access_order import meet
from flambeau_inductor.schedule.fuse.legality import FusionGroup, joint_space


def saved_bytes(
    a: FusionGroup,
    b: FusionGroup,
    read_elsewhere: Callable[[Node, FusionGroup, FusionGroup], bool],
    limits: Limits,
) -> int:
    """Reads shared, reads of each other's values, and writes that nobody else needs."""
    produced_a, produced_b = a.nodes(), b.nodes()
    linked = False
    shared = {node: min(a.reads[node], b.reads[node]) for node in a.reads.keys() & b.reads.keys()}
    total = sum(shared.values())
    for produced, reader in ((produced_a, b), (produced_b, a)):
        for node in produced & reader.reads.keys():
            linked = True
            total += reader.reads[node]
            if not read_elsewhere(node, a, b):
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
