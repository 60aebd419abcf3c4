"""How much memory traffic a fusion saves.

In: two groups. Out: bytes. Invariant: zero means that there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau_inductor.ir.tensors import Node
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.legal import Group


def saved_bytes(
    a: Group, b: Group, read_elsewhere: Callable[[Node, Group, Group], bool], limits: Limits
) -> int:
    """Reads shared, reads of each other's values, and writes that nobody else needs."""
    total = 0
    produced_a, produced_b = a.nodes(), b.nodes()
    linked = False
    for node in a.reads.keys() & b.reads.keys():
        total += min(a.reads[node], b.reads[node])
    for produced, reader in ((produced_a, b), (produced_b, a)):
        for node in produced & reader.reads.keys():
            linked = True
            total += reader.reads[node]
            if not read_elsewhere(node, a, b):
                total += node.nbytes
    if not linked and total * limits.shared_fraction < min(_moved(a), _moved(b)):
        return 0
    return total


def _moved(group: Group) -> int:
    return sum(group.reads.values()) + sum(m.node.nbytes for m in group.members)
