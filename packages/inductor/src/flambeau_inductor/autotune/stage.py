"""The stage of a compile that chooses the forms of a CPU's kernels.

In: a scheduled compilation without a GPU in it. Out: its `forms` and `choices`. Invariant: nothing
is measured where other sums than those of the rules are not wanted (`deterministic`), or where the
step to blame for a wrong answer is looked for.
"""

from __future__ import annotations

from flambeau_inductor.autotune.benchmark import Budget
from flambeau_inductor.autotune.cold_timing import CpuClock
from flambeau_inductor.autotune.cpp_variants import choose_forms
from flambeau_inductor.autotune.kept_choices import Tuner
from flambeau_inductor.cache import open_values
from flambeau_inductor.codegen import cpp
from flambeau_inductor.compilation import Compilation


def select_forms(work: Compilation) -> None:
    """Race the forms of the loops that become C++ kernels."""
    options = work.options
    layouts = {b.name: b.layout for b in work.scheduled().buffers}
    if options.deterministic or options.fuel.kernels is not None or options.kernels == "triton":
        return
    values = open_values(options.cache_dir, "autotune")
    budget = work.budget or Budget(options.autotune_seconds)
    tuner = Tuner(values, CpuClock(), budget)
    toolchain = cpp.find_toolchain(options.compiler)
    made = choose_forms(work.loops(), layouts, tuner, toolchain, options.threads)
    work.forms, work.choices = made.forms, made.told
    work.faults += values.faults
