"""The passes of a compile: lists, each of one level of IR, in their order.

In: nothing. Out: `LISTS`. Invariant: every pass that runs is in one of them, by a verb's name, and
is called by the driver alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from flambeau_inductor.compile_state import Compilation
from flambeau_inductor.driver import Pass, optional
from flambeau_inductor.ir.program import CallWithEpilogue, Program
from flambeau_inductor.ir.steps import on_a_gpu
from flambeau_inductor.options import Options
from flambeau_inductor.passes.epilogues import FUNCTIONS, fuse_epilogues, rule_of
from flambeau_inductor.passes.primitive_passes import PRIMITIVE_PASSES
from flambeau_inductor.pre_grad.captured_passes import CAPTURED_PASSES
from flambeau_inductor.schedule.bounds_checks import inline_bounds_checks
from flambeau_inductor.schedule.schedule import LOOP_PASSES, TENSOR_PASSES


def _fuse_epilogues(work: Compilation, gm: fx.GraphModule) -> tuple[fx.GraphModule, int]:
    fused = fuse_epilogues(gm, work.library.epilogues, work.ledger)
    calls = sum(isinstance(node.target, CallWithEpilogue) for node in fused.graph.nodes)
    return fused, 0 if fused is gm else calls


LIBRARY_PASSES: tuple[Pass[Compilation, fx.GraphModule], ...] = (
    Pass(
        "fuse_epilogues",
        _fuse_epilogues,
        lambda options: options.limits.fusion,
        rules=tuple(map(rule_of, FUNCTIONS)),
    ),
)
"""The last on primitives: what they make is for lowering alone."""


def _loaded(module: str, name: str, gpu: bool) -> Callable[..., tuple[Program, int]]:
    """A pass for programs with or without a GPU in them, which alone need its module."""

    def run(work: Compilation, program: Program) -> tuple[Program, int]:
        if on_a_gpu(program) is not gpu:
            return program, 0
        found = getattr(importlib.import_module(f"flambeau_inductor.{module}"), name)
        made: tuple[Program, int] = found(work, program)
        return made

    return run


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
        _loaded("templates.selection.select", "select_templates", gpu=True),
        lambda options: options.kernels != "cpp" and _every_kernel(options),
    ),
    Pass(
        "add_rows_sorted",
        _loaded("templates.selection.select", "add_rows_sorted", gpu=True),
        lambda options: options.kernels != "cpp" and _every_kernel(options),
    ),
    Pass(
        "join_launches",
        _loaded("templates.selection.select", "join_launches", gpu=True),
        lambda options: (
            options.kernels != "cpp" and _every_kernel(options) and options.limits.fusion
        ),
    ),
    Pass(
        "select_variants",
        _loaded("autotune.cpp_variants", "select_variants", gpu=False),
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
    "fx": ("a graph of primitives (FX)", PRIMITIVE_PASSES),
    "library": ("the same, for lowering alone", LIBRARY_PASSES),
    "tensor": ("a tensor program", TENSOR_PASSES),
    "program": ("a scheduled program", PROGRAM_PASSES),
}
"""The lists by level, each with what its passes take and give."""

CAPTURED = optional(CAPTURED_PASSES)
OPTIONAL = optional(PRIMITIVE_PASSES, LIBRARY_PASSES, TENSOR_PASSES, PROGRAM_PASSES)
"""Those that may be left out, before autograd and after it, as fuel counts them."""


RULES = tuple(name for _, passes in LISTS.values() for each in passes for name in each.rules)
"""Rules that may be left out one by one, besides those that are a pass of the same name."""


def skippable() -> frozenset[str]:
    """What `Options.skip_passes` may name: passes, and rules of the rewriter."""
    return frozenset({*CAPTURED, *OPTIONAL, *RULES})


def page() -> str:
    """The lists as they are documented."""
    rows = ["| passes on | in order |", "| --- | --- |"]
    for what, passes in LISTS.values():
        names = dict.fromkeys(f"`{each.name}`" for each in passes)
        rows.append(f"| {what} | {', '.join(names)} |")
    return "\n".join(rows) + "\n"
