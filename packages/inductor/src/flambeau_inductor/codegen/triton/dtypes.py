"""Triton types of torch dtypes.

In: a `torch.dtype`. Out: its Triton names. Invariant: a dtype missing here cannot be compiled,
and asking for it says so.
"""

from __future__ import annotations

import torch

from flambeau_inductor.errors import TritonUnsupported

NAMES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("tl.float32", "*fp32"),
    torch.float64: ("tl.float64", "*fp64"),
    torch.float16: ("tl.float16", "*fp16"),
    torch.bfloat16: ("tl.bfloat16", "*bf16"),
    torch.int64: ("tl.int64", "*i64"),
    torch.int32: ("tl.int32", "*i32"),
    torch.int16: ("tl.int16", "*i16"),
    torch.int8: ("tl.int8", "*i8"),
    torch.uint8: ("tl.uint8", "*u8"),
    torch.bool: ("tl.int1", "*i1"),
}
"""Of a value, and of a pointer in a signature."""
HALF = frozenset({torch.float16, torch.bfloat16})


def register(dtype: torch.dtype) -> str:
    """Name of `dtype` for values."""
    return _names(dtype)[0]


def pointer(dtype: torch.dtype) -> str:
    """Name of a pointer to `dtype` in a signature."""
    return _names(dtype)[1]


def _names(dtype: torch.dtype) -> tuple[str, str]:
    if dtype not in NAMES:
        raise TritonUnsupported(f"Triton kernels cannot hold values of {dtype}")
    return NAMES[dtype]
