"""Enumeration of code variants for a loop.

In: a loop as it is planned, and the bytes of a vector. Out: `Form`s by name, at most `MOST`.
Invariant: each is a neighbour of what the rules chose, and gives another kernel than they do.
"""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan, blocked_axis, plan
from flambeau_inductor.codegen.cpp.analysis.variant import MOST, NARROW, Form
from flambeau_inductor.codegen.cpp.analysis.vectorization import in_order
from flambeau_inductor.codegen.cpp.emit.reduction_passes import TILES, columns_at_once
from flambeau_inductor.ir.loops import Load, Loop, Reduce, Scan, Store

ACCUMULATORS = (8, 2)
BLOCKS = (32, 128)
FEW_LANES = 2


def alternatives(loop: Loop, vector_bytes: int) -> dict[str, Form]:
    """Forms to race the rules' against: what decides most comes first."""
    ruled = plan(loop, vector_bytes)
    if ruled.open or ruled.vector is None:
        return {}
    found: dict[str, Form] = {}
    if loop.r:
        found |= _of_reductions(ruled, vector_bytes)
    else:
        found |= _of_points(ruled)
    narrow = NARROW.get(vector_bytes)
    if narrow is not None and ruled.width > FEW_LANES and _computes(ruled):
        found["narrow"] = Form(vector_bytes=narrow)
    return dict(list(found.items())[:MOST])


def _of_reductions(ruled: LoopPlan, vector_bytes: int) -> dict[str, Form]:
    found: dict[str, Form] = {}
    loop = ruled.loop
    along_rows = ruled.vector == loop.r[-1].var
    other = Form(lanes="x" if along_rows else "r")
    across = plan(loop, vector_bytes, other).vector
    if across is not None and in_order(loop, across):
        found["lanes_across" if along_rows else "lanes_along"] = other
    if along_rows:
        reduces = any(isinstance(i, Reduce) for i in loop.body)
        if reduces and ruled.sizes[loop.r[-1].var] >= 8 * ruled.width:
            found |= {f"accumulators_{n}": Form(accumulators=n) for n in ACCUMULATORS}
    else:
        now = columns_at_once(ruled)
        others = {2 * now, now // 2} & {1, 2 * TILES[0], *TILES}
        found |= {f"columns_{n}": Form(columns=n) for n in sorted(others, reverse=True)}
    return found


def _of_points(ruled: LoopPlan) -> dict[str, Form]:
    loop = ruled.loop
    apart = ruled.private == frozenset(a.var for a in loop.x)
    if len(loop.x) < 2 or ruled.vector != loop.x[-1].var or not apart:
        return {}
    found: dict[str, Form] = {}
    if blocked_axis(ruled) is not None:
        found |= {f"block_{n}": Form(block=n) for n in BLOCKS}
    strides = {
        i.index.coefficient(ruled.vector)
        for i in loop.body
        if isinstance(i, Load | Store) and ruled.vector in i.index.vars
    }
    if strides - {1} and ruled.sizes[loop.x[-2].var] >= ruled.width:
        found["turned"] = Form(transposed=True)
    return found


def _computes(ruled: LoopPlan) -> bool:
    """Whether there is more to do than to move memory."""
    moves = sum(isinstance(i, Load | Store | Reduce | Scan) for i in ruled.loop.body)
    points = 1
    for size in ruled.sizes.values():
        points *= size
    return ruled.cost > 4 * moves * points
