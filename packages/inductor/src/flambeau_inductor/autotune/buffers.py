"""Stand-in buffers for measurements.

In: layouts. Out: tensors. Invariant: nothing of the caller's is read or written; floats are drawn
at random, integers are zero (a position that is always there).
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.program import Layout


def stand_in(layout: Layout) -> torch.Tensor:
    """A tensor of this layout.

    Raises TypeError where a size is open.
    """
    shape, stride, _ = layout.static()
    span = 1 + sum(max(n - 1, 0) * s for n, s in zip(shape, stride, strict=True))
    memory = torch.empty(span, dtype=layout.dtype, device=layout.device)
    if memory.is_floating_point():
        memory.normal_()  # whole: elements of the tensor may share memory
    else:
        memory.zero_()
    return memory.as_strided(shape, stride)
