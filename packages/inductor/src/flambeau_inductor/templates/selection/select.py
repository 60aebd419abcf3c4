"""Selection of templates and tilings, by autotuning or by a model of the device.

In: a scheduled program on a GPU. Out: `Selected`: the program with some library calls and the loops
that read them replaced, and kernels of its loops. Invariant: a replaced call computes the same;
what `library_replacements` names is taken unmeasured, and where nothing is measured faster or the
budget of the graph is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_inductor._torch_compat import products_tf32
from flambeau_inductor.autotune import Budget, CudaClock, Tuner
from flambeau_inductor.cache import open_store, open_values
from flambeau_inductor.codegen.errors import TritonUnsupported
from flambeau_inductor.codegen.triton.build import interpreting
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.kernels.generate import launch_library
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.templates.attention.flash_backward import backward_blocks
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.match_attention import (
    FoundAttention,
    FoundBackward,
    find_attention,
    find_backward,
)
from flambeau_inductor.templates.attention.problem import blocks_for
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, find
from flambeau_inductor.templates.scatter_add import sum_rows
from flambeau_inductor.templates.selection import library_replacements
from flambeau_inductor.templates.selection.races import (
    LIBRARY,
    race_attention,
    race_backward,
    race_product,
    race_tilings,
)
from flambeau_inductor.templates.selection.substitution import (
    Selected,
    facts,
    way_of,
    with_attention,
    with_backward,
    with_product,
)
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

    def raced(find: Callable[[Program], Sequence[Any]], race: Callable[..., None]) -> None:
        over = lambda: tuner.budget.over  # noqa: E731
        _decide(selected, done, find, lambda found: race(selected, found, *how), over)

    raced(lambda p: _largest_first(_products(selected, p)), race_product)
    raced(find_attention, race_attention)
    raced(find_backward, race_backward)
    if trusted:
        take_known(selected, done)
    for step in selected.program.steps:
        if tuner.budget.over:
            break
        if isinstance(step, RunLoop) and step.loop.name not in selected.kernels:
            race_tilings(selected, step.loop, tuner, device)
    return selected


def select_by_model(program: Program, tuning: Tuning = MEASURED) -> Selected:
    """The program with templates in the place of calls that they are known to be faster than."""
    selected = Selected(program, tuning=tuning)
    take_known(selected, set())
    return selected


def take_known(selected: Selected, done: set[str]) -> None:
    """The same where calls with results of such names have been decided about; all are then."""
    _decide(selected, done, partial(_products, selected), partial(_take_product, selected))
    _decide(selected, done, find_attention, partial(_take_attention, selected))
    _decide(selected, done, find_backward, partial(_take_backward, selected))


def _decide(
    selected: Selected,
    done: set[str],
    find: Callable[[Program], Sequence[Any]],
    decide: Callable[[Any], None],
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Decide about each call that `find` has in the program, in order: whatever takes the place of
    one moves those after it."""
    seen: Program | None = None
    calls: Sequence[Any] = ()
    while not over():
        if seen is not selected.program:
            seen = selected.program
            calls = find(seen)
        calls = [found for found in calls if found.result not in done]
        if not calls:
            return
        done.add(calls[0].result)
        decide(calls[0])


def _products(selected: Selected, program: Program) -> list[MatchedProduct]:
    return find(program, products_tf32(), selected.kernels)


def _largest_first(products: list[MatchedProduct]) -> list[MatchedProduct]:
    return sorted(products, key=lambda found: found.product.multiplications)[::-1]


def _take_product(selected: Selected, found: MatchedProduct) -> None:
    tile = library_replacements.tile_of(found, selected.tuning)
    if tile is None:
        return
    try:
        way = way_of(selected.program, found, tile)
    except TritonUnsupported:  # the loop that reads it has no Triton form: nothing can be fused
        return
    with_product(selected, found, way)
    selected.chosen[found.result] = tile.name


def _take_attention(selected: Selected, found: FoundAttention) -> None:
    a, tuning = found.attention, selected.tuning
    if library_replacements.better(selected.program, found.call, a, tuning):
        blocks = blocks_for(a, tuning.machine.described, tuning)[0]
        name = f"{found.result}_{blocks.name}"
        with_attention(selected, found, attention_kernel(a, blocks, *facts(selected.program), name))
        selected.chosen[found.result] = blocks.name


def _take_backward(selected: Selected, found: FoundBackward) -> None:
    forward, tuning = found.backward.forward, selected.tuning
    if library_replacements.better(selected.program, found.call, forward, tuning):
        pair = backward_blocks(forward, tuning.machine.described, tuning)[0]
        name = f"{found.result}_{pair[0].name}"
        with_backward(selected, found, found.kernels(pair, *facts(selected.program), name))
        selected.chosen[found.result] = "+".join(blocks.name for blocks in pair)
