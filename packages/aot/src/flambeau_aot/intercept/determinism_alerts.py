"""Determinism alerts that eager raises under `use_deterministic_algorithms`.

In: an operator with its arguments. Out: whether eager's kernel alerts. Invariant: the table is what
torch documents of that function; where an operator may be nondeterministic on a GPU alone, a tensor
on a CPU is no cause.
Source: the documentation of `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from flambeau_aot.joint.nested import tensors_in

#: arguments by name -> whether the call alerts
_Question = Callable[[Mapping[str, Any]], bool]


def _always(given: Mapping[str, Any]) -> bool:
    return True


def _overwrites(given: Mapping[str, Any]) -> bool:
    return not given.get("accumulate", False)


def _has_weights(given: Mapping[str, Any]) -> bool:
    return given.get("weights") is not None


def _multiplies(given: Mapping[str, Any]) -> bool:
    return given.get("reduce") == "prod"


def _of_fractions(given: Mapping[str, Any]) -> bool:
    tensor = given["self"]
    return bool(tensor.is_floating_point() or tensor.is_complex())


#: on every device
_ANYWHERE: dict[str, _Question] = {
    "aten::put": _overwrites,
    "aten::max_unpool2d": _always,
    "aten::max_unpool3d": _always,
}
#: on CUDA alone
_ON_GPU: dict[str, _Question] = {
    "aten::put": _always,
    "aten::avg_pool3d_backward": _always,
    "aten::_adaptive_avg_pool2d_backward": _always,
    "aten::_adaptive_avg_pool3d_backward": _always,
    "aten::max_pool3d_with_indices_backward": _always,
    "aten::adaptive_max_pool2d_backward": _always,
    "aten::fractional_max_pool2d_backward": _always,
    "aten::fractional_max_pool3d_backward": _always,
    "aten::upsample_linear1d_backward": _always,
    "aten::upsample_bilinear2d_backward": _always,
    "aten::upsample_bicubic2d_backward": _always,
    "aten::upsample_trilinear3d_backward": _always,
    "aten::reflection_pad1d_backward": _always,
    "aten::reflection_pad2d_backward": _always,
    "aten::reflection_pad3d_backward": _always,
    "aten::replication_pad1d_backward": _always,
    "aten::replication_pad2d_backward": _always,
    "aten::replication_pad3d_backward": _always,
    "aten::grid_sampler_2d_backward": _always,
    "aten::grid_sampler_3d_backward": _always,
    "aten::_ctc_loss_backward": _always,
    "aten::histc": _always,
    "aten::bincount": _has_weights,
    "aten::kthvalue": _always,
    "aten::scatter_reduce": _multiplies,
    "aten::cumsum": _of_fractions,
}


def alerts(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager's kernel of this call says that it has no deterministic implementation."""
    name = func._schema.name
    if name not in _ANYWHERE and name not in _ON_GPU:
        return False
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | {**kwargs}
    on_gpu = any(_device(tensor).type == "cuda" for tensor in tensors_in((args, kwargs)))
    asked = (_ON_GPU if on_gpu else _ANYWHERE).get(name) or _ANYWHERE.get(name)
    return asked is not None and asked(given)


def _device(tensor: torch.Tensor) -> torch.device:
    return torch.device(getattr(tensor, "fake_device", tensor.device))
