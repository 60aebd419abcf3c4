"""Bounds checks at run time, before memory is read through an index.

In: tensors in the memory of the CPU. Out: nothing, or the exception that eager would raise.
Invariant: what a GPU holds is never looked at from here: a program checks that in a kernel.
"""

from __future__ import annotations

import torch

from flambeau_inductor._torch_compat import without_memory

ERRORS: dict[str, type[Exception]] = {"IndexError": IndexError, "RuntimeError": RuntimeError}


def check_index(index: torch.Tensor, low: int, size: int, error: str, message: str) -> None:
    """Raise unless every element of `index` is in `range(low, size)`."""
    if not index.numel():
        return
    least, most = torch.aminmax(index)
    if least.item() < low or most.item() >= size:
        outside = torch.logical_or(index < low, index >= size)
        offender = index[outside][0].item()
        raise ERRORS[error](message.replace("{index}", str(offender)).replace("{size}", str(size)))


def check_values(value: torch.Tensor, step: str) -> None:
    """Raise `FloatingPointError` if `value`, which `step` made, holds a NaN."""
    if value.dtype.is_floating_point and bool(torch.isnan(value).any()):
        count = int(torch.isnan(value).sum())
        error = FloatingPointError(f"{count} of {value.numel()} elements are NaN after {step}")
        error.is_a_finding = True  # type: ignore[attr-defined]  # not to be answered by eager
        raise error


def check_input(
    position: int,
    value: object,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
) -> None:
    """Raise `ValueError` unless input `position` is what the graph was compiled for.

    The stride along a dimension of size 0 or 1 addresses nothing, so any will do.
    """
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"input {position} is a {type(value).__name__}, not a tensor")
    if without_memory(value) or value.is_conj() or value.is_neg():
        raise ValueError(
            f"input {position} is not plain memory (a zero tensor, or lazily conjugated or "
            "negated): clone it, or resolve it first"
        )
    strides = value.stride()
    if (
        tuple(value.shape) != shape
        or value.dtype != dtype
        or str(value.device) != device
        or any(n > 1 and a != b for n, a, b in zip(shape, strides, stride, strict=True))
    ):
        raise ValueError(
            f"input {position} is {value.dtype}{list(value.shape)} with strides {list(strides)} on "
            f"{value.device}; the graph was compiled for {dtype}{list(shape)} with strides "
            f"{list(stride)} on {device}"
        )
