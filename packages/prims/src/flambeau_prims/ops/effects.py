"""Effect primitives: write, device transfer, assertion.

In: a destination and a source; a tensor and a device; a condition. Out: the destination; a copy;
nothing.
Invariant: `copy_` is the only mutation in the dialect, and only ever of a graph input.
"""

from __future__ import annotations

import torch
from torch.fx.node import has_side_effect

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
    tags=("mutating", "effect"),
    doc="Writes `src` into `dst` and returns `dst`.",
    shape="that of `dst`, itself",
    edge_cases={"duplicates": "a `dst` that shows one element twice is undefined"},
    source="assignment",
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
    shape="that of the operand, on `device`",
    edge_cases="a copy also where `a` is there already",
    source="torch.Tensor.to",
)


def _assert_rule(condition: TensorMeta, message: str) -> tuple[TensorMeta, ...]:
    del message
    good = condition.dtype == torch.bool and condition.ndim == 0
    require(good, f"assert_true: {condition.dtype}{list(condition.shape)} is not a 0-d bool")
    return ()


def _assert_true(condition: torch.Tensor, message: str) -> None:
    if condition.device.type == "cpu" and not bool(condition):
        raise RuntimeError(message)
    torch.ops.aten._assert_async.msg(condition, message)


def _assert_meta(condition: torch.Tensor, message: str) -> None:
    _assert_rule(TensorMeta.of(condition), message)


assert_true = define(
    "assert_true(Tensor condition, str message) -> ()",
    rule=_assert_rule,
    eager=_assert_true,
    meta=_assert_meta,
    tags=("effect",),
    doc="Stops the program with `message` unless the condition holds; on a GPU at some later time.",
    shape="no result",
    edge_cases="never removed, never moved before what it guards by a reader",
    source="assert as in C11, 7.2",
    differentiable=False,
)
has_side_effect(assert_true)
