"""Triton types of torch dtypes.

In: a `torch.dtype`. Out: its Triton names. Invariant: a dtype missing here cannot be compiled,
and asking for it says so.
"""

from __future__ import annotations

import torch

from flambeau_inductor.codegen.errors import TritonUnsupported

REGISTER: dict[torch.dtype, str] = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}

POINTER: dict[torch.dtype, str] = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}

HALF = frozenset({torch.float16, torch.bfloat16})


def register(dtype: torch.dtype) -> str:
    """Name of `dtype` for values."""
    try:
        return REGISTER[dtype]
    except KeyError:
        raise TritonUnsupported(f"Triton kernels cannot hold values of {dtype}") from None


def pointer(dtype: torch.dtype) -> str:
    """Name of a pointer to `dtype` in a signature."""
    try:
        return POINTER[dtype]
    except KeyError:
        raise TritonUnsupported(f"Triton kernels cannot address memory of {dtype}") from None
