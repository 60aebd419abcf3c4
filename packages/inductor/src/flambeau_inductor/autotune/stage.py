"""The pass of a compile that chooses the forms of a CPU's kernels.

In: a program without a GPU in it. Out: the same, and the compile's `forms` and `choices`.
Invariant: nothing is measured where other sums than those of the rules are not wanted
(`deterministic`), or where the step to blame for a wrong answer is looked for.
"""

from __future__ import annotations

from flambeau_inductor.autotune.benchmark import Budget
from flambeau_inductor.autotune.cold_timing import CpuClock
from flambeau_inductor.autotune.cpp_variants import choose_forms
from flambeau_inductor.autotune.kept_choices import Tuner
from flambeau_inductor.cache import open_values
from flambeau_inductor.codegen import cpp
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import loops_of


def select_variants(work: Compilation, program: Program) -> tuple[Program, int]:
    """Race the forms of the loops that become C++ kernels."""
    options = work.options
    layouts = {b.name: b.layout for b in program.buffers}
    values = open_values(options.cache_dir, "autotune")
    budget = work.budget or Budget(options.autotune_seconds)
    tuner = Tuner(values, CpuClock(), budget)
    toolchain = cpp.find_toolchain(options.compiler)
    made = choose_forms(loops_of(program), layouts, tuner, toolchain, options.threads)
    work.forms, work.choices = made.forms, made.told
    work.faults += values.faults
    return program, 0
