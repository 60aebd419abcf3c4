"""The one primitive that writes, and the one that moves between devices.

In: a destination and a source; a tensor and a device. Out: the destination; a copy.
Invariant: `copy_` is the only mutation in the dialect, and only ever of a graph input.
"""

from __future__ import annotations

import torch

from flambeau_prims._op import define, require
from flambeau_prims.layout import TensorMeta, preserved_strides


def _copy_rule(dst: TensorMeta, src: TensorMeta) -> TensorMeta:
    require(dst.shape == src.shape, f"copy_: shapes {dst.shape} and {src.shape}")
    require(dst.dtype == src.dtype, f"copy_: dtypes {dst.dtype} and {src.dtype}; cast first")
    return dst


def _copy_meta(dst: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    _copy_rule(TensorMeta.of(dst), TensorMeta.of(src))
    return dst


copy_ = define(
    "copy_(Tensor(a!) dst, Tensor src) -> Tensor(a!)",
    rule=_copy_rule,
    eager=lambda dst, src: dst.copy_(src),
    meta=_copy_meta,
    tags=("mutating",),
    doc="Writes `src` into `dst` and returns `dst`.",
)


def _device_put_rule(a: TensorMeta, *, device: torch.device) -> TensorMeta:
    strides = preserved_strides(a)
    return TensorMeta(a.shape, strides, a.dtype, torch.device(device))


def _device_put(a: torch.Tensor, *, device: torch.device) -> torch.Tensor:
    meta = _device_put_rule(TensorMeta.of(a), device=device)
    result = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=meta.device)
    return result.copy_(a)


def _device_put_fake(a: torch.Tensor, *, device: torch.device) -> torch.Tensor:
    meta = _device_put_rule(TensorMeta.of(a), device=device)
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=meta.device)


device_put = define(
    "device_put(Tensor a, *, Device device) -> Tensor",
    rule=_device_put_rule,
    eager=_device_put,
    fake=_device_put_fake,
    tags=("shape",),
    doc="A copy of `a` on `device`, in the same layout.",
)
