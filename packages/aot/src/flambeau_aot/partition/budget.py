"""Memory budget: less saved for more recomputation, and the curve of all cuts.

What comes in: a partition problem and a budget. What goes out: the nodes to save, or the points
of the curve.
Invariant: the bytes saved are within the budget, or the budget is refused with the least that
can be reached.

A plain cut never runs a matrix product or a library call twice. Here some may: a knapsack chooses
which of them to keep, by the work that keeping each spares, within a capacity; the rest may run
twice and the cut is made again. The capacity is searched, since a kept operator may be saved
through a value computed from it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import fx

from flambeau_aot.errors import AotError
from flambeau_aot.partition.cost import nbytes, work
from flambeau_aot.partition.knapsack import keep
from flambeau_aot.partition.limit import BoundedCut, within_share
from flambeau_aot.partition.problem import Problem

_SEARCH_STEPS = 7


@dataclass(frozen=True)
class CurvePoint:
    """One cut: the bytes it saves, the part of all work it does twice, and what it saves."""

    saved_bytes: int
    share: float
    saved: tuple[str, ...]


@dataclass(frozen=True)
class _Choice:
    saved: list[fx.Node]
    size: int


def within_budget(problem: Problem, budget: float, share: float, cut: BoundedCut) -> list[fx.Node]:
    """The cut of least extra work that saves at most this many bytes.

    budget: an int is bytes; a float in [0, 1] is a point between the least memory (0) and that
    of the plain cut (1). Raises AotError for bytes that cannot be met.
    """
    most = _choice(problem, share, cut, None)
    if not isinstance(budget, bool) and isinstance(budget, int):
        goal = budget
    elif 0.0 <= budget <= 1.0:
        goal = -1
    else:
        raise AotError(f"a memory budget is a number of bytes or in [0, 1], not {budget!r}")
    if most.size <= goal:
        return most.saved
    # Under a small share, running more twice may have to be taken back at a higher price.
    least = min(most, _choice(problem, share, cut, 0), key=lambda choice: choice.size)
    if goal < 0:
        goal = least.size + round((most.size - least.size) * budget)
    if most.size <= goal:
        return most.saved
    if least.size > goal:
        raise AotError(
            f"a memory budget of {goal} bytes cannot be met: at least {least.size} bytes cross "
            f"from forward to backward, {most.size} by default; raise the budget, or the share "
            "of work that may be done twice"
        )
    return _search(problem, share, cut, least, goal).saved


def _search(problem: Problem, share: float, cut: BoundedCut, least: _Choice, goal: int) -> _Choice:
    """The choice of largest capacity that is within the goal."""
    low, high = 0, sum(nbytes(node.meta["val"]) for node in _expensive(problem))
    best = least
    for _ in range(_SEARCH_STEPS):
        if high - low <= max(1, goal // 256):
            break
        middle = (low + high) // 2
        found = _choice(problem, share, cut, middle)
        if found.size <= goal:
            low = middle
            if found.size >= best.size:
                best = found
        else:
            high = middle
    return best


def curve(problem: Problem, share: float, cut: BoundedCut, points: int) -> tuple[CurvePoint, ...]:
    """Cuts from the least memory to the plain one, none of which another beats on both counts."""
    total = sum(nbytes(node.meta["val"]) for node in _expensive(problem))
    capacities = [total * step // (points - 1) for step in range(points - 1)] if points > 1 else []
    choices = [_choice(problem, share, cut, capacity) for capacity in [*capacities, None]]
    found = sorted(
        (
            CurvePoint(
                item.size,
                problem.share(problem.again(item.saved)),
                tuple(node.name for node in item.saved),
            )
            for item in choices
        ),
        key=lambda point: (point.saved_bytes, point.share),
    )
    front: list[CurvePoint] = []
    for point in found:
        if not front or point.share < front[-1].share:
            front.append(point)
    return tuple(front)


def _choice(problem: Problem, share: float, cut: BoundedCut, capacity: int | None) -> _Choice:
    """The cut with what the knapsack keeps of the expensive operators; None keeps them all."""
    items = _expensive(problem)
    allowed: Collection[fx.Node] = ()
    if capacity is not None:
        sizes = [nbytes(node.meta["val"]) for node in items]
        kept = keep(sizes, [work(node, problem.kinds[node]) for node in items], capacity)
        allowed = {node for place, node in enumerate(items) if place not in kept}
        allowed = _with_parts(allowed)
    saved = within_share(problem, share, cut, allowed)
    return _Choice(saved, problem.bytes_saved(saved))


def _with_parts(nodes: Collection[fx.Node]) -> set[fx.Node]:
    parts = {user for node in nodes for user in node.users if isinstance(node.meta["val"], tuple)}
    return {*nodes, *parts}


def _expensive(problem: Problem) -> list[fx.Node]:
    return [node for node in problem.candidates if problem.expensive(node)]
