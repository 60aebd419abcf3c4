"""One loop as a C++ function.

In: a `LoopPlan`. Out: the function's text and the buffers it takes, in order. Invariant: the text
depends on the loop's structure alone, not on the names of its buffers, so that equal kernels are
equal texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.loop_nest import Nest
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.random_fusion import RandomFusion, fuse_with_draws
from flambeau_inductor.codegen.cpp.text import SourceLines
from flambeau_inductor.ir.loops import Load, Store

# around kernels longer than this other Python threads may run
RELEASE_WORK = 1 << 20


@dataclass(frozen=True, slots=True)
class CppKernel:
    """`body` is the text from the parameter list on; `buffers` bind the parameters in order, and
    `sizes` are the open sizes that come after them. `rows`: the text of another function, which
    does the rows from `row_b` to `row_e`, its last parameters, and which `body` calls `ROWS`;
    `behind`: the draws that it may run behind, by `team` threads at most. `must`: the parameters
    that are read or written at each point, which there are if `somewhere`, a condition in C++,
    holds ("": there always are)."""

    body: str
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    errors: bool
    releases: bool
    width: int
    rows: str = ""
    behind: RandomFusion | None = None
    team: int = 1
    must: tuple[int, ...] = ()
    somewhere: str = ""


def emit_kernel(
    plan: LoopPlan,
    dtype_of: Callable[[str], torch.dtype],
    threads: int | None = None,
    draws: str | None = None,
) -> CppKernel:
    """Print the kernel. `dtype_of` gives a buffer's element type; `draws` is a buffer of draws,
    behind which its rows are to run if they can."""
    text = SourceLines()
    values = KernelVariables(plan, text, dtype_of)
    how = fuse_with_draws(plan, draws) if draws is not None else None
    body = Nest(plan, text, values, threads, by_rows=how is not None)
    with text.block(""):
        if plan.errors:
            text("int error = 0, outside = 0;")
        body.emit()
        if plan.errors:
            text("*flag |= error | outside << 1;")
    rows = ""
    if how is not None:
        rows, text = str(text), SourceLines()
        with text.block(""):
            _all_rows(text, how, body, len(values.buffers))
    parameters = tuple(
        f"{'' if name in values.stored else 'const '}{spelling_of(dtype_of(name)).memory}*"
        for name in values.buffers
    )
    return CppKernel(
        str(text),
        parameters,
        tuple(values.buffers),
        plan.symbols,
        plan.errors,
        plan.open or plan.cost >= RELEASE_WORK,
        plan.width,
        rows,
        how,
        body.team if body.parallel else 1,
        *_accessed(plan, values),
    )


def _accessed(plan: LoopPlan, values: KernelVariables) -> tuple[tuple[int, ...], str]:
    """`must` and `somewhere` of a kernel."""
    accesses = (i for i in plan.loop.body if isinstance(i, Load | Store))
    sure = {i.buffer for i in accesses if isinstance(i, Store) or i.mask is None}
    exact = {a.var: plan.exact(a.var) for a in plan.axes}
    if 0 in exact.values():
        return (), ""
    opened = [f"{plan.bound(var)} > 0" for var, size in exact.items() if size is None]
    return tuple(k for k, b in enumerate(values.buffers) if b in sure), " && ".join(opened)


def _all_rows(text: SourceLines, how: RandomFusion, body: Nest, buffers: int) -> None:
    """Call the function of some rows for all of them, by pieces."""
    given = ", ".join(f"p{k}" for k in range(buffers))
    if body.parallel:
        text(f"#pragma omp parallel {body.threads}")
    with text.block(""):
        if body.parallel:
            text("#pragma omp for schedule(static) nowait")
        with text.block(f"for (long b = 0; b < {how.rows}; b += {how.piece})"):
            end = f"b + {how.piece}"
            text(f"ROWS({given}, b, {end} < {how.rows} ? {end} : {how.rows});")
        text("fence();")
