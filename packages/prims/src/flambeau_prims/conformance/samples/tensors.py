"""Tensors of sample calls.

In: a shape, a dtype, a generator. Out: tensors in layouts and with values that a kernel might get
wrong. Invariant: the same generator state gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from flambeau_prims.graph_recorder import map_values

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
I8, U8, I16, I32, I64 = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64
BOOL, C64, C128 = torch.bool, torch.complex64, torch.complex128
CPU = torch.device("cpu")

DTYPES = (F32, F64, BF16, F16, I64, I32, U8, I8, BOOL, C64, C128)
"""What the kit calls primitives on, wherever their rule allows it."""


def tensor(shape: Sequence[int], dtype: torch.dtype, g: Generator) -> Tensor:
    """Numbers in (0.05, 0.95), where logarithms and inverse functions are defined, and never 0.

    Integers are 1 to 6; complex numbers have both parts in that range.
    """
    size = tuple(shape)
    if dtype == BOOL:
        return torch.rand(size, generator=g) > 0.5
    if dtype.is_complex:
        parts = torch.rand((*size, 2), generator=g, dtype=F64) * 0.9 + 0.05
        return torch.view_as_complex(parts).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(1, 7, size, generator=g).to(dtype)
    return (torch.rand(size, generator=g, dtype=F64) * 0.9 + 0.05).to(dtype)


def signed(shape: Sequence[int], dtype: torch.dtype, g: Generator) -> Tensor:
    """Numbers of both signs (where the dtype has them) and a wider range."""
    if dtype == BOOL or not (dtype.is_signed or dtype.is_complex):
        return tensor(shape, dtype, g)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(tuple(shape), generator=g, dtype=C128 if dtype.is_complex else F64).to(
            dtype
        )
    return torch.randint(-9, 10, tuple(shape), generator=g).to(dtype)


def distinct(shape: Sequence[int], dtype: torch.dtype, g: Generator) -> Tensor:
    """All elements different, in random order (of at most 128, exact in every dtype but bool)."""
    count = torch.Size(shape).numel()
    if count > 128:
        raise ValueError(f"{count} distinct numbers do not fit every dtype")
    return torch.randperm(count, generator=g).view(tuple(shape)).to(dtype)


def positions(shape: Sequence[int], below: int, g: Generator) -> Tensor:
    """An index tensor: int64 in [0, below)."""
    return torch.randint(below, tuple(shape), generator=g)


def matrix(batch: Sequence[int], n: int, dtype: torch.dtype, g: Generator) -> Tensor:
    """Well-conditioned square matrices, diagonally dominant."""
    return signed((*batch, n, n), dtype, g) * 0.3 + torch.eye(n, dtype=dtype) * n


def hermitian(batch: Sequence[int], n: int, dtype: torch.dtype, g: Generator) -> Tensor:
    """Positive definite matrices with distinct eigenvalues."""
    a = matrix(batch, n, dtype, g)
    return (a @ a.mH) / n + torch.diag(torch.arange(1, n + 1).to(dtype))


def layouts(dtype: torch.dtype, g: Generator) -> dict[str, Tensor]:
    """One dtype in shapes and layouts that a kernel might get wrong."""
    return {
        "contiguous": tensor((3, 4, 5), dtype, g),
        "permuted": tensor((5, 3, 4), dtype, g).permute(1, 2, 0),
        "strided": tensor((3, 4, 10), dtype, g)[:, :, ::2],
        "offset": tensor((4, 4, 5), dtype, g)[1:],
        "expanded": tensor((3, 1, 5), dtype, g).expand(3, 4, 5),
        "channels_last": tensor((2, 3, 4, 5), dtype, g).contiguous(
            memory_format=torch.channels_last
        ),
        "scalar": tensor((), dtype, g),
        "one": tensor((1, 1), dtype, g),
        "odd": signed((7, 13), dtype, g).abs()
        if dtype.is_floating_point
        else tensor((7,), dtype, g),
        "empty": tensor((3, 0, 5), dtype, g),
    }


def special(dtype: torch.dtype) -> Tensor:
    """NaN, infinities, both zeros and the ends of the range; no subnormal numbers."""
    ends = torch.finfo(dtype)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, float("inf"), float("-inf"), float("nan")]
    return torch.tensor([*values, ends.max, ends.min, ends.tiny], dtype=dtype)


def extremes(dtype: torch.dtype) -> Tensor:
    """The ends of an integer dtype and what is next to 0; arithmetic on them wraps."""
    ends = torch.iinfo(dtype)
    low = [-1, -2] if ends.min < 0 else [2, 3]
    return torch.tensor([ends.min, ends.max, 0, 1, *low, ends.max - 1, 100], dtype=dtype)


def fresh(x: Tensor, device: torch.device | None = None) -> Tensor:
    """A copy of `x` with its strides and offset, in a storage of its own, on `device` if given."""
    storage = x.untyped_storage().clone()
    place = x.device if device is None else device
    if place != x.device:
        whole = torch.empty(0, dtype=torch.uint8, device=x.device).set_(storage)
        storage = whole.to(place).untyped_storage()
    return torch.empty(0, dtype=x.dtype, device=place).set_(
        storage, x.storage_offset(), x.shape, x.stride()
    )


def moved(item: Any, device: torch.device) -> Any:
    """`item` with its tensors and devices, also those in lists, on `device`."""

    def there(x: Any) -> Any:
        if isinstance(x, Tensor):
            return fresh(x, device) if x.device != device else x
        return device if isinstance(x, torch.device) else x

    return map_values(there, item)
