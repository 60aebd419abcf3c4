"""Guard tree of a page: guards by the object that they examine.

In: guards as text: a place, a kind. Out: `GuardNode`. Invariant: every guard is in the tree once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

PLACE = re.compile(r"""(\w[\w ]*) (['"])(.*)\2""")
ROOT = re.compile(r"[A-Za-z_]\w*|<[^>]*>")
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
    """The way to a place: `local 'self.layers[0].weight'` has four steps."""
    found = PLACE.fullmatch(place)
    if found is None:
        return [place]
    kind, quote, path = found.groups()
    root = ROOT.match(path)
    steps = STEP.findall(path, root.end()) if root is not None else []
    if root is None or f"{quote}, " in path or root.group() + "".join(steps) != path:
        return [place]  # several places, or one that is spelled in another way, are one step
    return [f"{kind} {root.group()}", *steps]
