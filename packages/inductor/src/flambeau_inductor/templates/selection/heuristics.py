"""Heuristics of template selection, without measurement.

In: a scheduled program on a GPU. Out: `Selected`. Invariant: only calls that `known` names, by the
kernels that are also the first candidates where it is measured.
"""

from __future__ import annotations

from flambeau_inductor._torch_compat import products_tf32
from flambeau_inductor.codegen.triton.errors import TritonUnsupported
from flambeau_inductor.ir.program import Program
from flambeau_inductor.templates.attention.flash_backward import backward_blocks
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.match_backward import find_backward
from flambeau_inductor.templates.attention.match_forward import find_attention
from flambeau_inductor.templates.attention.problem import blocks_for
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, find
from flambeau_inductor.templates.selection import library_replacements
from flambeau_inductor.templates.selection.substitution import (
    Selected,
    facts,
    way_of,
    with_attention,
    with_backward,
    with_product,
)
from flambeau_inductor.tuning import MEASURED, Tuning


def select_by_model(program: Program, tuning: Tuning = MEASURED) -> Selected:
    """The program with templates in the place of calls that they are known to be faster than."""
    selected = Selected(program, tuning=tuning)
    take_known(selected, set())
    return selected


def take_known(selected: Selected, done: set[str]) -> None:
    """The same where calls with results of such names have been decided about; all are then."""
    tuning = selected.tuning
    _products(selected, done)
    while True:
        calls = [f for f in find_attention(selected.program) if f.result not in done]
        if not calls:
            break
        found = calls[0]
        done.add(found.result)
        if library_replacements.better(selected.program, found.call, found.attention, tuning):
            blocks = blocks_for(found.attention, tuning.machine.described, tuning)[0]
            name = f"{found.result}_{blocks.name}"
            kernel = attention_kernel(found.attention, blocks, *facts(selected.program), name)
            with_attention(selected, found, kernel)
            selected.chosen[found.result] = blocks.name
    while True:
        backwards = [f for f in find_backward(selected.program) if f.result not in done]
        if not backwards:
            return
        back = backwards[0]
        done.add(back.result)
        if library_replacements.better(selected.program, back.call, back.backward.forward, tuning):
            pair = backward_blocks(back.backward.forward, tuning.machine.described, tuning)[0]
            kernels = back.kernels(pair, *facts(selected.program), f"{back.result}_{pair[0].name}")
            with_backward(selected, back, kernels)
            selected.chosen[back.result] = "+".join(blocks.name for blocks in pair)


def _products(selected: Selected, done: set[str]) -> None:
    while True:
        found = find(selected.program, products_tf32(), selected.kernels)
        calls = [each for each in found if each.result not in done]
        if not any(_taken(selected, each, done) for each in calls):
            return


def _taken(selected: Selected, found: MatchedProduct, done: set[str]) -> bool:
    """Whether the program was changed: where what was found after this lies is not known then."""
    done.add(found.result)
    tile = library_replacements.tile_of(found, selected.tuning)
    if tile is None:
        return False
    try:
        way = way_of(selected.program, found, tile)
    except TritonUnsupported:  # the loop behind it has no Triton form: nothing can be fused
        return False
    with_product(selected, found, way)
    selected.chosen[found.result] = tile.name
    return True
