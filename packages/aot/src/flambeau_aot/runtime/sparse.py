"""Sparse gradients, assembled from a backward graph's rows.

What comes in: for each use of an embedding's weight the rows' indices and gradients, as one tensor
each. What goes out: a sparse COO tensor, uncoalesced, as eager's.
Invariant: no graph holds a sparse tensor; rows of the padding index are left out here, where their
number is known.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from flambeau_aot.plan import SparseGrad


def assembled(spec: SparseGrad) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The function that makes the sparse gradient of values and indices."""

    def make(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        if spec.padding is not None:
            kept = rows != spec.padding
            rows, values = rows[kept], values[kept]
        return torch.sparse_coo_tensor(
            rows[None], values, spec.size, check_invariants=False, is_coalesced=False
        )

    return make
