"""Which of torch's libraries multiplies matrices faster on this processor.

In: the option, the cache folder. Out: yes or no. Invariant: measured once for a version of torch, a
processor and a number of threads, and kept on disk; where oneDNN is missing or switched off, or the
disk cannot keep the answer, torch's own choice stands or the answer holds for this process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from flambeau_inductor._torch_compat import onednn_linear
from flambeau_inductor.autotune.clocks import CpuClock
from flambeau_inductor.autotune.race import Budget, Candidate
from flambeau_inductor.autotune.tuned import Tuner
from flambeau_inductor.cache import open_values
from flambeau_inductor.options import Products

BLAS, ONEDNN = "blas", "onednn"

SIZE = 256
"""Rows, columns and terms of the product that is measured."""

SECONDS = 0.5
"""Most that the measurement may take."""


def onednn_products(wanted: Products, cache_dir: str | None) -> bool:
    """Whether large products of float32 matrices on a CPU go to oneDNN."""
    if wanted == BLAS or onednn_linear() is None:
        return False
    return wanted == ONEDNN or _measured(cache_dir, torch.get_num_threads()) == ONEDNN


@lru_cache(maxsize=8)
def _measured(cache_dir: str | None, threads: int) -> str:
    tuner = Tuner(open_values(cache_dir, "autotune"), CpuClock(1), Budget(SECONDS))
    return tuner.choose(f"float32 products, {threads} threads", (BLAS, ONEDNN), _candidates)


def _candidates() -> Sequence[Candidate]:
    linear = onednn_linear()
    assert linear is not None
    a, b, out = (torch.full((SIZE, SIZE), 0.5) for _ in range(3))

    def blas() -> object:
        with torch.no_grad():
            return torch.mm(a, b.t(), out=out)

    def onednn() -> object:
        with torch.no_grad():
            return linear(a, b, None, "none", [], "")

    return (Candidate(BLAS, blas), Candidate(ONEDNN, onednn))
