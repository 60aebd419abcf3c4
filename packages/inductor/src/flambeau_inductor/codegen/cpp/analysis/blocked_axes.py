"""Loop blocking: axes opened twice, by blocks and within them.

In: a `LoopPlan`. Out: the axis, or None. Invariant: each point is still visited once.
"""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.ir.loops import Load, Store


def shared_axis(plan: LoopPlan) -> str | None:
    """An inner axis whose parts threads may take, each with all points of the axes around it.

    Rows that are added where others may be: a thread adds its columns of all of them, in order.
    """
    if not plan.serial or plan.loop.r:
        return None
    wide = [a.var for a in plan.loop.x[1:] if a.var in plan.private and plan.sizes[a.var] >= 32]
    return wide[-1] if wide else None


def blocked_axis(plan: LoopPlan) -> str | None:
    """The outer axis along which memory is contiguous for an access that the lanes cross.

    A transposition reads along one axis and writes along another: blocks of both stay in cache.
    """
    loop = plan.loop
    if loop.r or plan.vector is None or len(loop.x) < 2:
        return None
    for instr in loop.body:
        if not isinstance(instr, Load | Store) or instr.index.coefficient(plan.vector) in (0, 1):
            continue
        for axis in reversed(loop.x[:-1]):
            if instr.index.coefficient(axis.var) == 1 and plan.sizes[axis.var] >= 16:
                return axis.var
    return None
