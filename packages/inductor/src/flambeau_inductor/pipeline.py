"""The passes of a compile: three lists, each of one level of IR, in their order.

In: nothing. Out: `LISTS`. Invariant: every pass that runs is in one of them, by a verb's name, and
is called by the driver alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau_inductor.compilation import Compilation
from flambeau_inductor.driver import Pass, optional
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import on_a_gpu
from flambeau_inductor.options import Options
from flambeau_inductor.passes.pipeline import FX_PASSES
from flambeau_inductor.pre_grad.prepare import CAPTURED_PASSES
from flambeau_inductor.schedule.inline_bounds_checks import inline_bounds_checks
from flambeau_inductor.schedule.schedule import LOOP_PASSES, TENSOR_PASSES


def _select_templates(work: Compilation, program: Program) -> tuple[Program, int]:
    if not on_a_gpu(program):
        return program, 0
    from flambeau_inductor.templates.selection.stage import select_templates  # only there

    return select_templates(work, program)


def _add_rows_sorted(work: Compilation, program: Program) -> tuple[Program, int]:
    if not on_a_gpu(program):
        return program, 0
    from flambeau_inductor.templates.selection.stage import add_rows_sorted  # only there

    return add_rows_sorted(work, program)


def _select_variants(work: Compilation, program: Program) -> tuple[Program, int]:
    if on_a_gpu(program):
        return program, 0
    from flambeau_inductor.autotune.stage import select_variants  # only where it is asked for

    return select_variants(work, program)


def _every_kernel(options: Options) -> bool:
    """A loop of a template, or one that checks, cannot be run by its meaning."""
    return options.fuel.kernels is None


PROGRAM_PASSES: tuple[Pass[Compilation, Program], ...] = (
    *LOOP_PASSES,
    Pass(
        "inline_bounds_checks",
        inline_bounds_checks,
        lambda options: options.kernels != "triton" and _every_kernel(options),
    ),
    Pass(
        "select_templates",
        _select_templates,
        lambda options: options.kernels != "cpp" and _every_kernel(options),
    ),
    Pass(
        "add_rows_sorted",
        _add_rows_sorted,
        lambda options: options.kernels != "cpp" and _every_kernel(options),
    ),
    Pass(
        "select_variants",
        _select_variants,
        lambda options: (
            options.max_autotune
            and not options.deterministic
            and options.kernels != "triton"
            and _every_kernel(options)
        ),
    ),
)

LISTS: dict[str, tuple[str, Sequence[Pass[Any, Any]]]] = {
    "captured": ("a captured graph (FX), before autograd", CAPTURED_PASSES),
    "fx": ("a graph of primitives (FX)", FX_PASSES),
    "tensor": ("a tensor program", TENSOR_PASSES),
    "program": ("a scheduled program", PROGRAM_PASSES),
}
"""The lists by level, each with what its passes take and give."""

CAPTURED = optional(CAPTURED_PASSES)
OPTIONAL = optional(FX_PASSES, TENSOR_PASSES, PROGRAM_PASSES)
"""Those that may be left out, before autograd and behind it, as fuel counts them."""


def page() -> str:
    """The lists as they are documented."""
    rows = ["| passes on | in order |", "| --- | --- |"]
    for what, passes in LISTS.values():
        names = dict.fromkeys(f"`{each.name}`" for each in passes)
        rows.append(f"| {what} | {', '.join(names)} |")
    return "\n".join(rows) + "\n"
