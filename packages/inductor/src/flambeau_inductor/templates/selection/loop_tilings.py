"""Alternative tilings of memory-bound loops.

In: a loop and the tiling that the model chose. Out: a few others by name. Invariant: the same axes
in the same dimensions; no program holds more than 128 elements a thread.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from flambeau_inductor.codegen.triton.tiling import Tiling
from flambeau_inductor.tuning.machine import THREAD_ELEMENTS


def alternatives(tiling: Tiling, least_points: int) -> dict[str, Tiling]:
    """Half and twice the warps, and twice the rows (or the block) of a program."""
    points = prod(d.size for d in tiling.dimensions)
    if points < least_points:
        return {}
    found: dict[str, Tiling] = {}
    first = tiling.dimensions[0]
    wider = replace(first, block=first.block * 2)
    twice = (wider, *tiling.dimensions[1:])
    for name, warps, dimensions in (
        ("fewer_warps", tiling.warps // 2, tiling.dimensions),
        ("more_warps", tiling.warps * 2, tiling.dimensions),
        ("wider", tiling.warps, twice),
        ("wider_more_warps", tiling.warps * 2, twice),
    ):
        elements = prod(d.block for d in dimensions)
        grown = dimensions is twice and first.block >= first.size
        if warps < 1 or warps > 32 or grown or elements > THREAD_ELEMENTS * 32 * warps:
            continue
        found[name] = replace(tiling, dimensions=dimensions, warps=warps)
    return found
