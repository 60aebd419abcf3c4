"""Bounds on a cut: the memory saved, and the work done twice.

In: a joint graph, or its partition problem, a budget or a share of the work. Out: the nodes to
save, or the points of the curve of all cuts.
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
from functools import cached_property

import torch
from torch import fx

from flambeau_aot.errors import AotError
from flambeau_aot.interface import Options
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.cost import nbytes, work
from flambeau_aot.partition.memory import live_bytes
from flambeau_aot.partition.mincut import cheapest
from flambeau_aot.partition.problem import Problem, mark_of, problem_of

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


@dataclass(frozen=True)
class BoundedCuts:
    """The cheapest cuts of a problem that do at most a share of all work twice."""

    problem: Problem
    share: float

    def cut(self, allowed: Collection[fx.Node] = ()) -> list[fx.Node]:
        """The cut, the costliest of what would run twice being banned until the rest is within;
        expensive operators that are `allowed` may run twice."""
        banned: set[fx.Node] = set()
        for _ in range(_ROUNDS):
            saved = cheapest(self.problem, allowed, banned)
            excess = self._over(saved)
            if not excess:
                return saved
            banned |= excess
        every = {node for node in self.problem.candidates if not _forced(node)}
        return cheapest(self.problem, (), every)

    def _over(self, saved: list[fx.Node]) -> set[fx.Node]:
        """The costliest operators that run twice, so many that the others are within the share."""
        problem, again = self.problem, self.problem.again(saved)
        if problem.share(again) <= self.share:
            return set()

        def cost(node: fx.Node) -> float:
            return work(node, problem.kinds[node])

        free = sorted((node for node in again if not _forced(node)), key=cost, reverse=True)
        step = max(1, len(free) // 16)
        ends = range(step, len(free) + step, step)
        within = (n for n in ends if problem.share({*again} - {*free[:n]}) <= self.share)
        return {node for node in free[: next(within, len(free))] if cost(node)}

    def within(self, budget: float) -> list[fx.Node]:
        """The cut of least extra work that saves at most this many bytes.

        budget: an int is bytes; a float in [0, 1] is a point between the least memory (0) and that
        of the plain cut (1). Raises AotError for bytes that are too few.
        """
        most = self._choice(None)
        if not isinstance(budget, bool) and isinstance(budget, int):
            goal = budget
        elif 0.0 <= budget <= 1.0:
            goal = -1
        else:
            raise AotError(f"a memory budget is a number of bytes or in [0, 1], not {budget!r}")
        if most.size <= goal:
            return most.saved
        # Under a small share, running more twice may have to be taken back at a higher price.
        least = min(most, self._choice(0), key=lambda choice: choice.size)
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
        return self._search(least, goal).saved

    def _search(self, least: _Choice, goal: int) -> _Choice:
        """The choice of largest capacity that is within the goal."""
        low, high, best = 0, sum(self.sizes), least
        for _ in range(_SEARCH_STEPS):
            if high - low <= max(1, goal // 256):
                break
            middle = (low + high) // 2
            found = self._choice(middle)
            if found.size <= goal:
                low = middle
                if found.size >= best.size:
                    best = found
            else:
                high = middle
        return best

    def curve(self, points: int) -> tuple[CurvePoint, ...]:
        """Cuts from the least memory to the plain one, none of which another beats on both
        counts."""
        total, steps = sum(self.sizes), points - 1
        choices = [self._choice(total * step // steps) for step in range(steps)]
        found = [
            CurvePoint(
                item.size,
                self.problem.share(self.problem.again(item.saved)),
                tuple(node.name for node in item.saved),
            )
            for item in [*choices, self._choice(None)]
        ]
        front: list[CurvePoint] = []
        for point in sorted(found, key=lambda point: (point.saved_bytes, point.share)):
            if not front or point.share < front[-1].share:
                front.append(point)
        return tuple(front)

    @cached_property
    def expensive(self) -> list[fx.Node]:
        """The operators that no plain cut runs twice."""
        return [node for node in self.problem.candidates if self.problem.expensive(node)]

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each of these."""
        return [nbytes(node.meta["val"]) for node in self.expensive]

    def _choice(self, capacity: int | None) -> _Choice:
        """The cut with what the knapsack keeps of the expensive operators; None keeps them all."""
        allowed: Collection[fx.Node] = ()
        if capacity is not None:
            costs = [work(node, self.problem.kinds[node]) for node in self.expensive]
            kept = keep(self.sizes, costs, capacity)
            allowed = {node for place, node in enumerate(self.expensive) if place not in kept}
            several = [node for node in allowed if isinstance(node.meta["val"], tuple)]
            allowed = {*allowed, *(user for node in several for user in node.users)}
        saved = self.cut(allowed)
        size = live_bytes(self.problem.joint.graph, saved, self.problem.written)
        return _Choice(saved, size)


def _forced(node: fx.Node) -> bool:
    return mark_of(node) == "must_recompute" or node.op != "call_function"


def min_cut_partition(joint: Joint, options: Options | None = None) -> list[fx.Node]:
    """The cheapest set of values from which the backward part can be computed.

    Under `options.memory_budget` more is computed again, so that less is saved; under
    `options.recompute_share` less is, so that the work done twice stays below that part of the
    whole. Raises AotError where a budget in bytes is too small.
    """
    options = options or Options()
    problem = problem_of(joint, options.classify)
    budget, share = options.memory_budget, options.recompute_share
    if budget is None or (isinstance(budget, float) and budget == 1.0):
        return BoundedCuts(problem, share).cut()
    return BoundedCuts(problem.bounded, share).within(budget)


def memory_curve(
    joint: Joint, options: Options | None = None, points: int = 11
) -> tuple[CurvePoint, ...]:
    """What saving less costs: cuts from the least memory to the default one, none beaten by another
    on both counts. `options.recompute_share` bounds the work as it does in a compile."""
    options = options or Options(recompute_share=1.0)
    problem = problem_of(joint, options.classify).bounded
    return BoundedCuts(problem, options.recompute_share).curve(points)
