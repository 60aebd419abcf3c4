"""Effect primitives: write, device transfer, assertion.

In: a destination and a source; a tensor and a device; a condition. Out: the destination; a copy;
nothing.
Invariant: `copy_` is the only mutation in the dialect, and only ever of a graph input.
"""

from __future__ import annotations

import torch
from torch.fx.node import has_side_effect

from flambeau_prims._op import PRIMS, empty_as, primitive, require
from flambeau_prims.shape_rules import TensorMeta, preserved_strides


def _writing(dst: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    copy_(TensorMeta.of(dst), TensorMeta.of(src))
    return dst


@primitive(
    "copy_(Tensor(a!) dst, Tensor src) -> Tensor(a!)",
    lambda dst, src: dst.copy_(src),
    meta=_writing,
    tags=("mutating", "effect"),
    shape="that of `dst`, itself",
    edge_cases={"duplicates": "a `dst` that shows one element twice is undefined"},
    source="assignment",
)
def copy_(dst: TensorMeta, src: TensorMeta) -> TensorMeta:
    """Writes `src` into `dst` and returns `dst`."""
    require(dst.shape == src.shape, f"shapes {dst.shape} and {src.shape}")
    require(dst.dtype == src.dtype, f"dtypes {dst.dtype} and {src.dtype}; cast first")
    return dst


def _device_put(a: torch.Tensor, *, device: torch.device) -> torch.Tensor:
    """Memory for the copy."""
    meta = device_put(TensorMeta.of(a), device=device)
    return empty_as(meta, meta.device)


@primitive(
    "device_put(Tensor a, *, Device device) -> Tensor",
    lambda a, device: _device_put(a, device=device).copy_(a),
    fake=_device_put,
    tags=("shape",),
    shape="that of the operand, on `device`",
    edge_cases="a copy also where `a` is there already",
    source="torch.Tensor.to",
)
def device_put(a: TensorMeta, *, device: torch.device) -> TensorMeta:
    """A copy of `a` on `device`, in the same layout."""
    return TensorMeta(a.shape, preserved_strides(a), a.dtype, torch.device(device))


def _assert_true(condition: torch.Tensor, message: str) -> None:
    if condition.device.type == "cpu" and not bool(condition):
        raise RuntimeError(message)
    torch.ops.aten._assert_async.msg(condition, message)


@primitive(
    "assert_true(Tensor condition, str message) -> ()",
    _assert_true,
    tags=("effect",),
    shape="no result",
    edge_cases="never removed, never moved before what it guards by a reader",
    source="assert as in C11, 7.2",
    differentiable=False,
)
def assert_true(condition: TensorMeta) -> tuple[TensorMeta, ...]:
    """Stops the program with `message` unless the condition holds; on a GPU at some later time."""
    good = condition.dtype == torch.bool and condition.ndim == 0
    require(good, f"{condition.dtype}{list(condition.shape)} is not a 0-d bool")
    return ()


@primitive(
    "check_factorization(Tensor info, str name, bool is_matrix) -> ()",
    lambda info, name, is_matrix: torch.ops.aten._linalg_check_errors(
        info, name, is_matrix=is_matrix
    ),
    tags=("effect",),
    shape="no result",
    edge_cases="never removed; waits for the device, as eager does",
    source="info of LAPACK's routines, LAPACK Users' Guide, 7.1",
    differentiable=False,
)
def check_factorization(info: TensorMeta) -> tuple[TensorMeta, ...]:
    """Raises `LinAlgError` in the name of `name` unless every `info` is 0; it says in which matrix
    of a batch unless there `is_matrix` alone."""
    require(info.dtype == torch.int32, f"info of {info.dtype}")
    return ()


for _name in ("assert_true", "check_factorization"):
    has_side_effect(PRIMS[_name].overload)
