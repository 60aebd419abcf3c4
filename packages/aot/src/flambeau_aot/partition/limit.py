"""Bound on rematerialised work.

What comes in: a partition problem, the bound and a way to cut. What goes out: the nodes to save.
Invariant: the work done twice is at most that part of the work of forward and backward, but for
what a checkpoint policy says must be computed again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from torch import fx

from flambeau_aot.partition.cost import work
from flambeau_aot.partition.problem import Problem, mark_of

_ROUNDS = 6


class BoundedCut(Protocol):
    """Values to save, where `allowed` may run twice and `banned` may not."""

    def __call__(
        self, problem: Problem, allowed: Collection[fx.Node] = (), banned: Collection[fx.Node] = ()
    ) -> list[fx.Node]: ...


def within_share(
    problem: Problem, share: float, cut: BoundedCut, allowed: Collection[fx.Node] = ()
) -> list[fx.Node]:
    """The cut, the costliest of what would run twice being banned until the rest is within."""
    banned: set[fx.Node] = set()
    for _ in range(_ROUNDS):
        saved = cut(problem, allowed, banned)
        excess = _over(problem, saved, share)
        if not excess:
            return saved
        banned |= excess
    return cut(problem, (), {node for node in problem.candidates if not _forced(node)})


def _over(problem: Problem, saved: list[fx.Node], share: float) -> set[fx.Node]:
    """The costliest operators that run twice, so many that the others are within the share."""
    again = problem.again(saved)
    if problem.share(again) <= share:
        return set()
    free = sorted(
        (node for node in again if not _forced(node)),
        key=lambda node: work(node, problem.kinds[node]),
        reverse=True,
    )
    chosen: set[fx.Node] = set()
    left = set(again)
    step = max(1, len(free) // 16)
    for start in range(0, len(free), step):
        chosen.update(free[start : start + step])
        left.difference_update(free[start : start + step])
        if problem.share(left) <= share:
            break
    return {node for node in chosen if work(node, problem.kinds[node])}


def _forced(node: fx.Node) -> bool:
    return mark_of(node) == "must_recompute" or node.op != "call_function"
