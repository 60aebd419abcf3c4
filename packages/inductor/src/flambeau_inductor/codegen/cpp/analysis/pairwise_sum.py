"""Pairwise summation: blocks of a long float reduction.

In: a `LoopPlan`. Out: the depth of the loop whose sum is a partial one. Invariant: the error of a
sum grows with the logarithm of the length of its row rather than with the length.
"""

from __future__ import annotations

from math import prod

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan

# steps of the innermost loop that go into one partial sum
BLOCK_STEPS = 64
# a nest shorter than this is summed directly
DIRECT_STEPS = 128


def cascade_depth(plan: LoopPlan) -> int | None:
    """Depth of the loop whose sum is a partial one; the number of loops: cut the innermost. None
    where the row is short."""
    r = plan.loop.r
    steps = [_steps(plan, a.var) for a in r]
    if prod(steps) <= DIRECT_STEPS:
        return None
    if steps[-1] > BLOCK_STEPS:
        return len(r)
    together = 1
    for depth in range(len(r) - 1, 0, -1):
        together *= steps[depth]
        if together * 2 >= BLOCK_STEPS:
            return depth
    return None


def _steps(plan: LoopPlan, var: str) -> int:
    size = plan.sizes[var]
    steps = -(-size // plan.width) if var == plan.vector else size
    # an open axis may be long in another call
    return steps if plan.exact(var) is not None else max(steps, 2 * DIRECT_STEPS)
