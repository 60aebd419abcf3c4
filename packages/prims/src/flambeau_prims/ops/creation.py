"""Creation primitives.

In: sizes and numbers. Out: contiguous tensors. Invariant: dtype and device are always explicit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_prims._op import define, flops_per_output, require
from flambeau_prims.layout import Size, TensorMeta, contiguous_strides


def _created(shape: Sequence[Size], dtype: torch.dtype, device: torch.device) -> TensorMeta:
    return TensorMeta(tuple(shape), contiguous_strides(shape), dtype, torch.device(device))


def _full_rule(
    shape: Sequence[Size], value: complex, *, dtype: torch.dtype, device: torch.device
) -> TensorMeta:
    del value
    require(all(size >= 0 for size in shape), f"full: shape {list(shape)}")
    return _created(shape, dtype, device)


def _full(
    shape: Sequence[Size], value: complex, *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    limits = torch.finfo(dtype) if dtype.is_floating_point and type(value) is float else None
    if limits is not None and not limits.min <= value <= limits.max:  # type: ignore[operator]
        return torch.full(tuple(shape), value, dtype=torch.float64, device=device).to(dtype)
    return torch.full(tuple(shape), value, dtype=dtype, device=device)


full = define(
    "full(SymInt[] shape, Scalar value, *, ScalarType dtype, Device device) -> Tensor",
    rule=_full_rule,
    eager=_full,
    tags=("creation",),
    doc="Every element is `value`.",
    shape="`shape`, contiguous",
    edge_cases={"out of range": "a float is rounded; an integer is an error in eager"},
    source="constant tensor",
)


def _iota_rule(
    length: Size, start: float, step: float, *, dtype: torch.dtype, device: torch.device
) -> TensorMeta:
    del start, step
    require(length >= 0, f"iota: length {length}")
    return _created((length,), dtype, device)


def _iota(
    length: Size, start: float, step: float, *, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    if dtype.is_floating_point:
        positions = torch.arange(length, dtype=torch.float64, device=device)
        return (start + positions * step).to(dtype)
    positions = torch.arange(length, dtype=torch.int64, device=device)
    return (int(start) + positions * int(step)).to(dtype)


iota = define(
    "iota(SymInt length, Scalar start, Scalar step, *, ScalarType dtype, Device device) -> Tensor",
    rule=_iota_rule,
    eager=_iota,
    tags=("creation",),
    doc="start + i * step for i below `length`; formed in int64 or float64, then rounded.",
    shape="(length,)",
    edge_cases={"integers": "start and step are truncated first; the sum wraps"},
    source="iota: Iverson, A Programming Language, 1962",
    flops=flops_per_output(2),
    differentiable=False,
)
