"""Decompositions of copying views.

In: ATen's `_copy` operations. Out: what their view is decomposed into, and `clone`.
Invariant: a variant is registered by naming its view, which has a decomposition already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import flambeau_prims.decomp.views.strided  # noqa: F401 - the views that are looked up below
from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.decomp.views.view import sliced
from flambeau_prims.layout import Size
from flambeau_prims.table import TABLE, decomposition

aten = torch.ops.aten

_COPIES: dict[OpOverload, OpOverload] = {
    aten.view_copy.default: aten.view.default,
    aten.alias_copy.default: aten.alias.default,
    aten.detach_copy.default: aten.detach.default,
    aten.expand_copy.default: aten.expand.default,
    aten.permute_copy.default: aten.permute.default,
    aten.transpose_copy.int: aten.transpose.int,
    aten.t_copy.default: aten.t.default,
    aten.unsqueeze_copy.default: aten.unsqueeze.default,
    aten.squeeze_copy.default: aten.squeeze.default,
    aten.squeeze_copy.dim: aten.squeeze.dim,
    aten.squeeze_copy.dims: aten.squeeze.dims,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.select_copy.int: aten.select.int,
    aten.split_copy.Tensor: aten.split.Tensor,
    aten.split_with_sizes_copy.default: aten.split_with_sizes.default,
    aten.unbind_copy.int: aten.unbind.int,
    aten._reshape_alias_copy.default: aten._reshape_alias.default,
    aten.as_strided_copy.default: aten.as_strided.default,
    aten.diagonal_copy.default: aten.diagonal.default,
    aten.unfold_copy.default: aten.unfold.default,
    aten.view_copy.dtype: aten.view.dtype,
}

# What nobody is told are views: eager's parts lie where those of a view do.
_UNSAFE = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}


def _copying(view_op: OpOverload) -> Callable[..., Any]:
    function = TABLE[view_op]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is NotImplemented:
            return result
        if isinstance(result, list):
            return [p.clone(part) for part in result]
        return p.clone(result)

    return call


for _copy, _view in _COPIES.items():
    decomposition(_copy)(_copying(_view))
for _copy, _view in _UNSAFE.items():
    decomposition(_copy)(TABLE[_view])


@decomposition(aten.narrow_copy.default)
def narrow_copy(x: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    where = canonical(dim, x.ndim)
    size = x.shape[where]
    begin = start + size if start < 0 else start
    if not (begin >= 0 and length >= 0 and begin + length <= size):
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return p.clone(sliced(x, where, begin, begin + length))
