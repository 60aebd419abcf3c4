"""Guards as a tree by the object that they look at.

In: guards as text: a place, a kind. Out: `GuardNode`. Invariant: every guard is in the tree once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

STEP = re.compile(r"\.[A-Za-z_]\w*|\[[^\]]*\]")


@dataclass
class GuardNode:
    """A place, the kinds of guards on it, and the places inside it."""

    name: str
    kinds: list[str] = field(default_factory=list)
    inside: dict[str, GuardNode] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Guards here and inside."""
        return len(self.kinds) + sum(node.count for node in self.inside.values())


def guard_tree(guards: Iterable[str]) -> GuardNode:
    """The tree of guards, its root without a name."""
    root = GuardNode("guards")
    for guard in guards:
        place, _, kind = guard.rpartition(" ")
        node = root
        for step in steps_of(place or guard):
            node = node.inside.setdefault(step, GuardNode(step))
        node.kinds.append(kind)
    return root


def steps_of(place: str) -> list[str]:
    """The way to a place: `local 'self'.layers[0].weight` has four steps."""
    quote = place.rfind("'", 0, _end_of_name(place)) + 1
    if quote == 0 or ", " in place:
        return [place]
    steps = STEP.findall(place, quote)
    if "".join(steps) != place[quote:]:
        return [place]  # a place that is spelled in another way is one step
    return [place[:quote], *steps]


def _end_of_name(place: str) -> int:
    """Where the quoted name at the start of a place ends."""
    first = place.find("'")
    second = place.find("'", first + 1) if first >= 0 else -1
    return second + 1 if second >= 0 else 0
