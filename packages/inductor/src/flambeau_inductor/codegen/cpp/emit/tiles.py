"""Register tiles: several vectors of columns in one pass.

In: a plan and how many vectors the tile has. Out: the passes, with the row values between them.
Invariant: what one pass gives another is kept in arrays with an element a vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.emit.compute import compute
from flambeau_inductor.codegen.cpp.emit.passes import Pass
from flambeau_inductor.codegen.cpp.emit.stores import store
from flambeau_inductor.codegen.cpp.emit.unrolled_columns import each_column, refer_saved
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.text import SourceLines
from flambeau_inductor.ir.loops import Reduce, ReducePart, Store


def emit_tile(plan: LoopPlan, text: SourceLines, values: KernelVariables, tile: int) -> None:
    """All passes for `tile` vectors of columns from `t` on, with the row values between them."""
    text(f"const width<{plan.width}> n{{}};")
    saved: list[str] = []
    before: Pass | None = None
    for level in range(max(plan.level, default=0) + 1):
        saved += _emit_columns(plan, text, values, level, before, saved, tile)
        before = Pass(plan, text, values, level)
        before.emit_tile(tile, saved)


def _emit_columns(
    plan: LoopPlan,
    text: SourceLines,
    values: KernelVariables,
    level: int,
    before: Pass | None,
    saved: Sequence[str],
    tile: int,
) -> list[str]:
    """Row values of a level, from those that are saved and the pass before; names of the arrays."""
    made: list[tuple[str, str]] = []
    inside = SourceLines()
    outer, values.text = values.text, inside
    if before is not None:
        made += before.accumulators.name_results(inside)
    for position, instr in enumerate(plan.loop.body):
        if plan.is_element(position) or plan.level[position] != level:
            continue
        if isinstance(instr, Store):
            store(values, position)
        elif not isinstance(instr, Reduce | ReducePart) and plan.is_vector(position):
            compute(values, position)
            made.append((f"v{position}", values.type_of(instr.dtype, True)))
    values.text = outer
    if not inside.lines:
        return []
    for name, kind in made:
        text(f"{kind} {name}s[{tile}];")
    with each_column(plan, text, tile):
        refer_saved(text, saved)
        for line in inside.lines:
            text(line)
        for name, _ in made:
            text(f"{name}s[u] = {name};")
    return [name for name, _ in made]
