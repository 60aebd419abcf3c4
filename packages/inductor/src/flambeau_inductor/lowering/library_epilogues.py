"""Which library calls take along what follows them.

In: epilogues by the node of the call, and what pays. Out: offers to the rules, and what they took.
Invariant: a node is absorbed only if the rule of its call has taken it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from flambeau_inductor.ir.epilogues import LibraryEpilogue
from flambeau_inductor.lowering.choices import LibraryChoices


class Offers:
    """What calls may take along, and what they have taken.

    `absorbed`: by node, the epilogue that it went into; `pairs`: calls, and the last of the nodes
    that they took.
    """

    def __init__(
        self,
        found: Mapping[fx.Node, LibraryEpilogue],
        choices: LibraryChoices,
        most: int | None = None,
    ) -> None:
        self.absorbed: dict[fx.Node, LibraryEpilogue] = {}
        self.pairs: list[tuple[str, str]] = []
        self._found = found
        self._choices = choices
        self._most = most

    def of(self, node: fx.Node, left: int | None) -> LibraryEpilogue | None:
        """What `node` may take along, if that pays and `left` operations may still be lowered."""
        found = self._found.get(node)
        if found is None or len(self.pairs) == self._most:
            return None
        if left is not None and left < _between_nodes(node, found.nodes[-1]):
            return None
        return found if self._choices.epilogues(found.function) else None

    def taken(self, node: fx.Node) -> None:
        """Note that `node` has taken along what it was offered."""
        found = self._found[node]
        self.absorbed.update(dict.fromkeys(found.nodes, found))
        self.pairs.append((node.name, found.nodes[-1].name))


def _between_nodes(first: fx.Node, last: fx.Node) -> int:
    """How many nodes there are from the first to the last one."""
    count, here = 1, first
    while here is not last:
        count, here = count + 1, here.next
    return count
