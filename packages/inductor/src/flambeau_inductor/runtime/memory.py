"""Tensors over existing memory.

In: tensors and layouts (shapes and strides in elements). Out: tensors over the same memory, or over
new memory of a layout. Invariant: offsets count from the tensor's own first element.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor
Sizes = Sequence[int]


def seen_as(tensor: Tensor, shape: Sizes, stride: Sizes, offset: int) -> Tensor:
    """The memory of `tensor`, from its element `offset` on, as a tensor of `shape`."""
    return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


def scalar(value: float, device: str = "cpu") -> Tensor:
    """A number where kernels of a device can read it; a GPU is not waited for."""
    if device == "cpu":
        return torch.tensor(value, dtype=torch.float64)
    return torch.full((), value, dtype=torch.float64, device=device)


def reuse(old: Tensor, shape: Sizes, stride: Sizes, dtype: torch.dtype) -> Tensor:
    """A tensor of `dtype` (as wide as the old one's) over the memory of `old`."""
    same = old if old.dtype == dtype else old.view(dtype)
    return same.as_strided(shape, stride)


def laid_out(value: Tensor, shape: Sizes, stride: Sizes, dtype: torch.dtype) -> Tensor:
    """`value`, a library call's result, with the strides that kernels and callers count on."""
    if value.stride() == stride and value.shape == shape and value.dtype == dtype:
        return value
    if tuple(value.shape) != tuple(shape) or value.dtype != dtype:
        raise RuntimeError(
            f"a library call gave {value.dtype}{list(value.shape)} where the graph's metadata say"
            f" {dtype}{list(shape)}"
        )
    moved = any(n > 1 and a != b for n, a, b in zip(shape, value.stride(), stride, strict=True))
    if not moved or not value.numel():
        return value.as_strided(shape, stride)
    once = [1 if not step else n for n, step in zip(shape, stride, strict=True)]  # in memory
    made = torch.empty_strided(once, stride, dtype=dtype, device=value.device)
    return made.copy_(value.as_strided(once, value.stride())).expand(shape)
