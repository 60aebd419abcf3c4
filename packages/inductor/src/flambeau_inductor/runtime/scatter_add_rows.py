"""Row-wise scatter-add by library calls.

In: where each row goes, the rows. Out: the table. Invariant: sums are formed in float32, whatever
the table is, and rounded once.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor

ROWS_ADDED = "flambeau.rows_added.default"
"""A call by its name in programs, whose place kernels take on a GPU."""


def rows_added(
    rows: Tensor, values: Tensor, count: int, dtype: torch.dtype, base: Tensor | None
) -> Tensor:
    """`base` (zeros, where there is none) of `count` rows, with `values` added to those at `rows`.

    A negative position counts from the end. Raises IndexError for one outside.
    """
    width = values.shape[1]
    wide = values.new_zeros((count, width), dtype=torch.float32) if base is None else base.float()
    return wide.index_put((rows,), values.float(), accumulate=True).to(dtype)
