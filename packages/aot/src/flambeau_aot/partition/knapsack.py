"""Knapsack solver: what to save within a capacity.

What comes in: sizes and values, whole numbers and floats; no torch graph. What goes out: the
positions kept.
Invariant: the sizes kept add up to at most the capacity.

Dynamic programming over capacities rounded to a grid, sizes rounded up, so that the result is
never over capacity; it is the best one up to that rounding (Dantzig 1957; Martello and Toth 1990).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

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
