"""Determinism alerts that eager raises under `use_deterministic_algorithms`.

In: an operator with its arguments. Out: whether eager's kernel alerts. Invariant: the table is what
torch documents of that function; where an operator may be nondeterministic on a GPU alone, a tensor
on a CPU is no cause.
Source: the documentation of `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flambeau_aot.joint.nested import tensors_in

_When = Callable[[Mapping[str, Any]], bool]
"""From the arguments, by name, to whether the call alerts."""


def _always(given: Mapping[str, Any]) -> bool:
    return True


def _of_fractions(given: Mapping[str, Any]) -> bool:
    return bool(given["self"].is_floating_point() or given["self"].is_complex())


_ANYWHERE: dict[str, _When] = {
    "aten::put": lambda given: not given.get("accumulate", False),
    "aten::max_unpool2d": _always,
    "aten::max_unpool3d": _always,
}
_BACKWARDS = (
    "avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool3d_with_indices "
    "adaptive_max_pool2d fractional_max_pool2d fractional_max_pool3d upsample_linear1d "
    "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
    "grid_sampler_2d grid_sampler_3d _ctc_loss"
)
_ON_GPU: dict[str, _When] = {
    **dict.fromkeys((f"aten::{name}_backward" for name in _BACKWARDS.split()), _always),
    **dict.fromkeys(("aten::put", "aten::histc", "aten::kthvalue"), _always),
    "aten::bincount": lambda given: given.get("weights") is not None,
    "aten::scatter_reduce": lambda given: given.get("reduce") == "prod",
    "aten::cumsum": _of_fractions,
}
"""Of operators that alert on CUDA alone."""


def alerts(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager's kernel of this call says that it has no deterministic implementation."""
    name = func._schema.name
    if name not in _ANYWHERE and name not in _ON_GPU:
        return False
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | {**kwargs}
    devices = (getattr(x, "fake_device", x.device) for x in tensors_in((args, kwargs)))
    on_gpu = any(device.type == "cuda" for device in devices)
    asked = (_ON_GPU if on_gpu else _ANYWHERE).get(name) or _ANYWHERE.get(name)
    return asked is not None and asked(given)
