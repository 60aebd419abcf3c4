"""Selection of templates by autotuning.

In: a scheduled program on a GPU and a `Tuner`. Out: `Selected`: the program with some library calls
and the loops behind them replaced, and the kernels of its loops that are not written as usual.
Invariant: a replaced call computes the same; where nothing measured faster, or no time is left to
measure, what is taken without measurement is.

Products are raced first, those with the most to compute before the others.
"""

from __future__ import annotations

from flambeau_inductor._torch_compat import products_tf32
from flambeau_inductor.autotune import Tuner
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.templates.attention.match_backward import find_backward
from flambeau_inductor.templates.attention.match_forward import find_attention
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, find
from flambeau_inductor.templates.selection.benchmarks import (
    LIBRARY,
    race_attention,
    race_backward,
    race_product,
    race_tilings,
)
from flambeau_inductor.templates.selection.heuristics import take_known
from flambeau_inductor.templates.selection.substitution import Selected, facts
from flambeau_inductor.tuning import MEASURED, Tuning

__all__ = ["LIBRARY", "Selected", "facts", "select"]


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
    """Race templates against library calls, and tilings against each other.

    `device` says what the measurements hold for (name and capability), `described` whether it has
    a tensor memory accelerator. `library` launches, without it nothing is described. `trusted`: it
    is one for whose `tuning` it is known what is taken without measurement. That comes first in
    each race, so that it is taken unless another way was measured to be faster.
    """
    selected = Selected(program, library, trusted, tuning)
    described = described and library is not None
    done: set[str] = set()
    _race_products(selected, done, tuner, device, described)
    while not tuner.budget.over:
        calls = [f for f in find_attention(selected.program) if f.result not in done]
        if not calls:
            break
        done.add(calls[0].result)
        race_attention(selected, calls[0], tuner, device, described)
    while not tuner.budget.over:
        backwards = [f for f in find_backward(selected.program) if f.result not in done]
        if not backwards:
            break
        done.add(backwards[0].result)
        race_backward(selected, backwards[0], tuner, device, described)
    if trusted:
        take_known(selected, done)
    for step in selected.program.steps:
        if tuner.budget.over:
            break
        if isinstance(step, RunLoop) and step.loop.name not in selected.kernels:
            race_tilings(selected, step.loop, tuner, device)
    return selected


def _race_products(
    selected: Selected, done: set[str], tuner: Tuner, device: str, described: bool
) -> None:
    seen: Program | None = None
    products: list[MatchedProduct] = []
    while not tuner.budget.over:
        if seen is not selected.program:  # whatever takes a place moves what is behind it
            seen = selected.program
            products = sorted(
                find(seen, products_tf32(), selected.kernels),
                key=lambda found: found.product.multiplications,
            )
        products = [found for found in products if found.result not in done]
        if not products:
            return
        found = products.pop()
        done.add(found.result)
        race_product(selected, found, tuner, device, described)
