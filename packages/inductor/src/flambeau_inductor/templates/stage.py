"""The stage of a compile that chooses kernels by measurement.

In: a scheduled compilation. Out: its program and `chosen_kernels`. Invariant: without a GPU in the
program nothing is done; the budget of seconds is that of the whole graph.
"""

from __future__ import annotations

import torch

from flambeau_inductor.autotune import Budget, CudaClock, Tuner
from flambeau_inductor.cache import open_store, open_values
from flambeau_inductor.codegen.triton.build import interpreting
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.kernels import launch_library
from flambeau_inductor.templates.described import CAPABILITY
from flambeau_inductor.templates.select import select


def select_kernels(work: Compilation) -> None:
    """Race templates and tilings on the device that the program runs on."""
    program = work.scheduled()
    devices = {b.layout.device for b in program.buffers if b.layout.device.type == "cuda"}
    if len(devices) != 1 or interpreting() or work.options.kernels == "cpp":
        return
    if work.options.fuel.kernels is not None:  # a loop of a template cannot be run by its meaning
        return
    index = devices.pop().index or 0
    values = open_values(work.options.cache_dir, "autotune")
    with torch.cuda.device(index):
        tuner = Tuner(values, CudaClock(index), Budget(work.options.autotune_seconds))
        described = torch.cuda.get_device_capability(index) >= CAPABILITY
        library = launch_library(work.options, open_store(work.options.cache_dir))
        where = machine(index)
        made = select(program, tuner, where, described=described, library=library)
    work.program, work.chosen_kernels, work.choices = made.program, made.kernels, made.chosen


def machine(index: int) -> str:
    """What measurements hold for."""
    major, minor = torch.cuda.get_device_capability(index)
    return f"{torch.cuda.get_device_name(index)} sm_{major}{minor}"
