"""Dtypes that CUDA kernels refuse and CPU kernels take.

In: an ATen operator's name. Out: the dtypes that eager refuses on a CUDA device.
Invariant: data of torch's own operation database (`dtypes` less `dtypesIfCUDA`), which a test holds
it to; what depends on the device's generation (bfloat16 in products) is left out, and complex32
and 8-bit floats, which no decomposition computes in.
"""

from __future__ import annotations

import torch

HALVES = frozenset({torch.float16, torch.bfloat16})
INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
LONG = frozenset({torch.int64})
BYTES = frozenset({torch.uint8})

NOT_ON_CUDA: dict[str, frozenset[torch.dtype]] = {
    **dict.fromkeys(("angle", "igamma", "igammac", "histc"), HALVES),
    **dict.fromkeys(("mm", "bmm", "addmm", "addbmm", "baddbmm", "_trilinear"), INTEGERS),
    **dict.fromkeys(("mv", "addmv", "dot", "vdot"), INTEGERS),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), INTEGERS),
    **dict.fromkeys(("native_dropout_backward",), INTEGERS | {torch.bool}),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d", "convolution"), LONG),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_bicubic2d"), BYTES),
    "_upsample_bilinear2d_aa": BYTES,
}
"""By the name of the operator, its in-place form included."""


def refused_on_cuda(name: str) -> frozenset[torch.dtype]:
    """The dtypes of its first operand that an operator does not take on a CUDA device."""
    return NOT_ON_CUDA.get(name.rstrip("_"), frozenset())
