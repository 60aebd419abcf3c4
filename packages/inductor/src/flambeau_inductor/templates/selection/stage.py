"""The passes of a compile that choose a GPU's kernels, by measurement or by what is known.

In: a program. Out: another, and the compile's `chosen_kernels`. Invariant: without a GPU in the
program nothing is done; the budget of seconds is that of the whole graph.
"""

from __future__ import annotations

import torch

from flambeau_inductor.autotune import Budget, CudaClock, Tuner
from flambeau_inductor.cache import open_store, open_values
from flambeau_inductor.codegen.triton.build import interpreting
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.ir.program import Program
from flambeau_inductor.kernels.generate import launch_library
from flambeau_inductor.templates.scatter_add import sum_rows
from flambeau_inductor.templates.selection import heuristics
from flambeau_inductor.templates.selection.select import Selected, select
from flambeau_inductor.tuning import Tuning, host_tuning, machine_of, tuning_for


def select_templates(work: Compilation, program: Program) -> tuple[Program, int]:
    """Race templates and tilings on the device that the program runs on; without
    `max_autotune`, take the templates that are known to be faster."""
    index = _gpu_of(program)
    if index is None:
        return program, 0
    tuning = tuning_for(machine_of(index))
    if work.options.max_autotune:
        return _taken(work, _raced(work, program, index, tuning))
    if tuning.machine.multiplies_half:  # older devices get no template without measurement
        return _taken(work, heuristics.select_by_model(program, tuning))
    return program, 0


def add_rows_sorted(work: Compilation, program: Program) -> tuple[Program, int]:
    """Add rows to rows of a table by kernels that sort their positions."""
    index = _gpu_of(program)
    if index is None:
        return program, 0
    selected = Selected(program, tuning=tuning_for(machine_of(index)))
    sum_rows(selected)
    return _taken(work, selected)


def _taken(work: Compilation, selected: Selected) -> tuple[Program, int]:
    work.chosen_kernels |= selected.kernels
    work.choices |= selected.chosen
    return selected.program, len(selected.kernels)


def _gpu_of(program: Program) -> int | None:
    """The one GPU of a program that is here; None where kernels are interpreted."""
    devices = {b.layout.device for b in program.buffers if b.layout.device.type == "cuda"}
    if len(devices) != 1 or interpreting() or not torch.cuda.is_available():
        return None
    return devices.pop().index or 0


def _raced(work: Compilation, program: Program, index: int, tuning: Tuning) -> Selected:
    store = open_store(work.options.cache_dir)
    values = open_values(work.options.cache_dir, "autotune")
    with torch.cuda.device(index):
        budget = work.budget or Budget(work.options.autotune_seconds)
        # with less left than compiling a race takes none is begun, and defaults are taken
        budget.longest = max(budget.longest, host_tuning().triton_seconds)
        tuner = Tuner(values, CudaClock(index), budget)
        with budget.spending():
            return select(
                program,
                tuner,
                machine(index),
                described=tuning.machine.described,
                trusted=tuning.trusted,
                tuning=tuning,
                library=launch_library(work.options, store),
            )


def machine(index: int) -> str:
    """What measurements hold for."""
    major, minor = torch.cuda.get_device_capability(index)
    return f"{torch.cuda.get_device_name(index)} sm_{major}{minor}"
