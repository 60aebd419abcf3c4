"""Bounds on a cut: the memory saved, and the work done twice.

In: a partition problem, a budget or a share of the work, and a way to cut. Out: the nodes to save,
or the points of the curve of all cuts.
Invariant: the bytes saved are within the budget, or the budget is refused with the least that can
be reached; the work done twice is within the share, but for what a checkpoint policy forces.

A plain cut never runs a matrix product or a library call twice. Here some may: a knapsack chooses
which of them to keep, by the work that keeping each spares, within a capacity; the rest may run
twice and the cut is made again. The capacity is searched, since a kept operator may be saved
through a value computed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import fx

from flambeau_aot.errors import AotError
from flambeau_aot.partition.cost import nbytes, work
from flambeau_aot.partition.problem import Problem, mark_of

_GRID = 1024


def keep(sizes: Sequence[int], values: Sequence[float], capacity: int) -> set[int]:
    """Positions whose values add up to the most within the capacity."""
    if sum(sizes) <= capacity:
        return set(range(len(sizes)))
    kept = {place for place, size in enumerate(sizes) if size == 0}
    rest = [place for place, size in enumerate(sizes) if 0 < size <= capacity]
    if not rest or capacity <= 0:
        return kept
    unit = max(1, -(-capacity // _GRID))
    cells = capacity // unit
    best = torch.zeros(cells + 1, dtype=torch.float64)
    taken = torch.zeros((len(rest), cells + 1), dtype=torch.bool)
    for row, place in enumerate(rest):
        size = -(-sizes[place] // unit)
        if size > cells:
            continue
        with_it = best[: cells + 1 - size] + values[place]
        better = with_it > best[size:]
        taken[row, size:] = better
        best[size:] = torch.where(better, with_it, best[size:])
    cell = int(best.argmax())
    for row in range(len(rest) - 1, -1, -1):
        if taken[row, cell]:
            kept.add(rest[row])
            cell -= -(-sizes[rest[row]] // unit)
    return kept


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

    budget: an int is bytes; a float in [0, 1] is a point between the least memory (0) and that of
    the plain cut (1). Raises AotError for bytes that are too few.
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
