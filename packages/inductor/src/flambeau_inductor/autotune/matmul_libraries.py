"""Autotuning of matrix product libraries on this processor.

In: options. Out: yes or no, by a product's sizes. Invariant: measured once for a version of torch,
a processor and a number of threads, and kept on disk; where oneDNN is missing or switched off, or
the disk cannot keep the answer, torch's own choice stands or it holds for this process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from flambeau_inductor._torch_compat import onednn_linear
from flambeau_inductor.autotune.benchmark import Budget, Candidate, CpuClock, Tuner
from flambeau_inductor.cache import open_values
from flambeau_inductor.lowering.context import LibraryChoices, Sizes
from flambeau_inductor.options import Options, Products
from flambeau_inductor.tuning import host_tuning

BLAS, ONEDNN = "blas", "onednn"

EPILOGUES = frozenset({"hardswish", "leaky_relu"})
"""Functions that oneDNN applies to what it computes sooner than a loop of their own would. Its
`gelu` and `swish` take as long as such a loop, or longer."""

SIZE = 256
"""Rows, columns and terms of the product that is measured."""

SECONDS = 0.5
"""Most that the measurement may take."""


def library_choices(options: Options, budget: Budget | None = None) -> LibraryChoices:
    """The choices of lowering. With `max_autotune` products are measured at their own sizes, within
    `budget` (the options' own where none is given)."""
    wanted, cache_dir, host = options.products, options.cache_dir, host_tuning()
    if not options.max_autotune or wanted != "measured":
        alone = torch.get_num_threads() == 1
        least = host.onednn_operations_alone if alone else host.onednn_operations
        return LibraryChoices(
            lambda sizes: onednn_products(wanted, cache_dir), least, EPILOGUES.__contains__
        )
    values = open_values(cache_dir, "autotune")
    tuner = Tuner(values, CpuClock(1), budget or Budget(options.autotune_seconds))

    def measured(sizes: Sizes) -> bool:
        if onednn_linear() is None:
            return False
        key = f"float32 product {sizes}, {torch.get_num_threads()} threads"
        return tuner.choose(key, (BLAS, ONEDNN), lambda: _candidates(sizes)) == ONEDNN

    return LibraryChoices(measured, host.onednn_operations_raced, EPILOGUES.__contains__)


def onednn_products(wanted: Products, cache_dir: str | None) -> bool:
    """Whether large products of float32 matrices on a CPU go to oneDNN."""
    if wanted == BLAS or onednn_linear() is None:
        return False
    return wanted == ONEDNN or _measured(cache_dir, torch.get_num_threads()) == ONEDNN


@lru_cache(maxsize=8)
def _measured(cache_dir: str | None, threads: int) -> str:
    tuner = Tuner(open_values(cache_dir, "autotune"), CpuClock(1), Budget(SECONDS))
    sizes = (SIZE, SIZE, SIZE)
    key = f"float32 products, {threads} threads"
    return tuner.choose(key, (BLAS, ONEDNN), lambda: _candidates(sizes))


def _candidates(sizes: Sizes) -> Sequence[Candidate]:
    linear = onednn_linear()
    assert linear is not None
    rows, terms, columns = sizes
    a, b, out = (
        torch.full(shape, 0.5) for shape in ((rows, terms), (columns, terms), (rows, columns))
    )

    def blas() -> object:
        with torch.no_grad():
            return torch.mm(a, b.t(), out=out)

    def onednn() -> object:
        with torch.no_grad():
            return linear(a, b, None, "none", [], "")

    return (Candidate(BLAS, blas), Candidate(ONEDNN, onednn))
