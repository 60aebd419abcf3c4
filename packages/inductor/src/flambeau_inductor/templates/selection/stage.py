"""The stage of a compile that chooses kernels, by measurement or by what is known.

In: a scheduled compilation. Out: its program and `chosen_kernels`. Invariant: without a GPU in the
program nothing is done; the budget of seconds is that of the whole graph.
"""

from __future__ import annotations

import torch

from flambeau_inductor.autotune import Budget, CudaClock, Tuner
from flambeau_inductor.cache import open_store, open_values
from flambeau_inductor.codegen.triton.build import interpreting
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.kernels.generate import launch_library
from flambeau_inductor.templates.gemm import tma
from flambeau_inductor.templates.scatter_add import sum_rows
from flambeau_inductor.templates.selection import heuristics, tuning_data
from flambeau_inductor.templates.selection.select import Selected, select

MAKING = 2.0
"""Seconds that compiling the kernels of a race may take, as long as none was: with less than that
left, none is begun, and defaults are taken."""


def select_kernels(work: Compilation) -> None:
    """Race templates and tilings on the device that the program runs on; without
    `max_autotune`, take the templates that are known to be faster. Rows are added by kernels in
    any case."""
    program = work.scheduled()
    devices = {b.layout.device for b in program.buffers if b.layout.device.type == "cuda"}
    if len(devices) != 1 or interpreting() or work.options.kernels == "cpp":
        return
    if work.options.fuel.kernels is not None:  # a loop of a template cannot be run by its meaning
        return
    if not torch.cuda.is_available():  # a program for another machine
        return
    index = devices.pop().index or 0
    capability = torch.cuda.get_device_capability(index)
    if work.options.max_autotune:
        made = _raced(work, index, capability)
    elif capability == tuning_data.CAPABILITY:  # others have less shared memory, or better kernels
        made = heuristics.select_by_model(program)
    else:
        made = Selected(program)
    sum_rows(made)
    work.program, work.chosen_kernels, work.choices = made.program, made.kernels, made.chosen


def _raced(work: Compilation, index: int, capability: tuple[int, int]) -> Selected:
    store = open_store(work.options.cache_dir)
    values = open_values(work.options.cache_dir, "autotune")
    with torch.cuda.device(index):
        budget = work.budget or Budget(work.options.autotune_seconds)
        budget.longest = max(budget.longest, MAKING)
        tuner = Tuner(values, CudaClock(index), budget)
        with budget.spending():
            return select(
                work.scheduled(),
                tuner,
                machine(index),
                described=capability >= tma.CAPABILITY,
                trusted=capability == tuning_data.CAPABILITY,
                library=launch_library(work.options, store),
            )


def machine(index: int) -> str:
    """What measurements hold for."""
    major, minor = torch.cuda.get_device_capability(index)
    return f"{torch.cuda.get_device_name(index)} sm_{major}{minor}"
