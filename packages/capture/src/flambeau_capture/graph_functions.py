"""Functions that graphs call beside torch's own.

In: bodies captured as graphs of their own, and tensors. Out: what torch's transforms make of them.
Invariant: they are plain torch code, so that whoever traces a graph sees the operators inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def vmap_call(
    body: fx.GraphModule, in_dims: tuple[Any, ...], out_dims: Any, randomness: str, *args: Any
) -> Any:
    """`torch.vmap(body, in_dims, out_dims, randomness)(*args)`."""
    return torch.vmap(body, in_dims=in_dims, out_dims=out_dims, randomness=randomness)(*args)
