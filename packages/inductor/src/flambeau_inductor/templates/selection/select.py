"""Selection of templates and tilings, by autotuning or by a model of the device.

In: a scheduled program on a GPU. Out: `Selected`: the program with some library calls and the loops
that read them replaced, and kernels of its loops. Invariant: a replaced call computes the same;
what `unmeasured_choices` names is taken unmeasured, and where nothing is measured faster or the
budget of the graph is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from flambeau_inductor._torch_compat import products_tf32
from flambeau_inductor.autotune import Budget, CudaClock, Tuner
from flambeau_inductor.cache import open_store, open_values
from flambeau_inductor.codegen.triton.build import interpreting
from flambeau_inductor.compile_state import Compilation
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.ir.loops import buffers_of
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.kernels.launching import launch_library
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.templates.attention.match_attention import find_attention, find_backward
from flambeau_inductor.templates.call_replacement import Selected, facts, on_processor
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, find
from flambeau_inductor.templates.joint_launch import join_small
from flambeau_inductor.templates.scatter_add import sum_rows
from flambeau_inductor.templates.selection import unmeasured_choices
from flambeau_inductor.templates.selection.races import LIBRARY, race, race_tilings, ways
from flambeau_inductor.templates.selection.unmeasured_choices import Found
from flambeau_inductor.tuning import MEASURED, Tuning, host_tuning, machine_of, tuning_for

__all__ = ["LIBRARY", "Selected", "facts", "select"]


def select_templates(work: Compilation, program: Program) -> tuple[Program, int]:
    """Race templates and tilings on the device that the program runs on; without `max_autotune`,
    take the templates that are known to be faster."""
    index = _gpu_of(program)
    if index is None:
        return program, 0
    tuning = tuning_for(machine_of(index))
    if work.options.max_autotune:
        return _taken(work, _raced(work, program, index, tuning))
    if tuning.machine.multiplies_half:  # older devices get no template without measurement
        return _taken(work, select_by_model(program, tuning))
    return program, 0


def add_rows_sorted(work: Compilation, program: Program) -> tuple[Program, int]:
    """Add rows to rows of a table by kernels that sort their positions."""
    index = _gpu_of(program)
    if index is None:
        return program, 0
    selected = Selected(program, tuning=tuning_for(machine_of(index)))
    sum_rows(selected)
    return _taken(work, selected)


def join_launches(work: Compilation, program: Program) -> tuple[Program, int]:
    """Launch small kernels that follow each other and are independent as one."""
    index = _gpu_of(program)
    if index is None:
        return program, 0
    tuning = tuning_for(machine_of(index))
    selected = Selected(program, tuning=tuning, kernels=dict(work.chosen_kernels))
    joined = join_small(selected)
    work.chosen_kernels = selected.kernels
    return selected.program, joined


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
    values = open_values(work.options.cache_dir, "autotune")
    with torch.cuda.device(index):
        budget = work.budget or Budget(work.options.autotune_seconds)
        # with less left than compiling a race takes none is begun, and defaults are taken
        budget.longest = max(budget.longest, host_tuning().triton_seconds)
        with budget.spending():
            return select(
                program,
                Tuner(values, CudaClock(index), budget),
                machine(index),
                described=tuning.machine.described,
                trusted=tuning.trusted,
                tuning=tuning,
                library=launch_library(work.options, open_store(work.options.cache_dir)),
            )


def machine(index: int) -> str:
    major, minor = torch.cuda.get_device_capability(index)
    return f"{torch.cuda.get_device_name(index)} sm_{major}{minor}"


def select(
    program: Program,
    tuner: Tuner,
    device: str,
    *,
    described: bool = False,
    library: Library | None = None,
    trusted: bool = False,
    tuning: Tuning = MEASURED,
) -> Selected:
    """Race templates against library calls, those with the most to compute first, then tilings
    against each other.

    `device` says what the measurements hold for (name and capability), `described` whether it has
    a tensor memory accelerator. `library` launches, without it nothing is described. `trusted`: it
    is one for whose `tuning` it is known what is taken without measurement, which then comes first
    in each race.
    """
    selected = Selected(program, library, trusted, tuning)
    how = (tuner, device, described and library is not None)
    done: set[str] = set()
    _decide(selected, done, lambda found: race(selected, found, *how), lambda: tuner.budget.over)
    if trusted:
        take_known(selected, done)
    elsewhere = on_processor(selected.program)
    for step in selected.program.steps:
        if tuner.budget.over:
            break
        if not isinstance(step, RunLoop) or step.loop.name in selected.kernels:
            continue
        if not buffers_of(step.loop) & elsewhere:
            race_tilings(selected, step.loop, tuner, device)
    return selected


def select_by_model(program: Program, tuning: Tuning = MEASURED) -> Selected:
    """The program with templates in the place of calls that they are known to be faster than."""
    selected = Selected(program, tuning=tuning)
    take_known(selected, set())
    return selected


def take_known(selected: Selected, done: set[str]) -> None:
    """The same where calls with results of such names have been decided about; all are then."""
    tuning = selected.tuning

    def decide(found: Found) -> None:
        if not unmeasured_choices.known(selected.program, found, tuning):
            return
        with suppress(TritonUnsupported):  # the loop that reads it has no Triton form
            made = ways(selected.program, found, tuning.machine.described, tuning)
            selected.take(found, *next(made))

    _decide(selected, done, decide)


def _decide(
    selected: Selected,
    done: set[str],
    decide: Callable[[Any], None],
    over: Callable[[], bool] | None = None,
) -> None:
    """Decide about each call that a template may take the place of, until it is `over`: whatever
    takes the place of one moves those after it. Where time may run out, products with the most to
    compute come first."""

    def products(program: Program) -> list[MatchedProduct]:
        found = find(program, products_tf32(), selected.kernels)
        largest = sorted(found, key=lambda each: each.product.multiplications)[::-1]
        return found if over is None else largest

    finds: tuple[Callable[[Program], Sequence[Any]], ...]
    finds = products, find_attention, find_backward
    for calls_in in finds:
        seen: Program | None = None
        calls: Sequence[Any] = ()
        while over is None or not over():
            if seen is not selected.program:
                seen = selected.program
                calls = calls_in(seen)
            calls = [found for found in calls if found.result not in done]
            if not calls:
                break
            done.add(calls[0].result)
            decide(calls[0])
