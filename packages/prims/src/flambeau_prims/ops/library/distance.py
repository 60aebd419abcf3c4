"""Leaves of distances and their gradients.

In: batches of rows of one dtype, the order `p` of a norm. Out: norms of differences of rows.
Invariant: `p` is not negative; 0 counts the entries that differ, infinity takes the largest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from flambeau_prims._op import MetaResult, require, tensor_metas
from flambeau_prims.layout import Size, TensorMeta
from flambeau_prims.ops.library.leaf import leaf

aten = torch.ops.aten
_FULL = frozenset({torch.float32, torch.float64})
_EDGES = {
    "nan": "gives NaN",
    "ties": "the gradient of a distance of 0 is 0",
    "note": "`p` 0 counts entries that differ, infinity takes the largest",
}


def _check(name: str, p: float, *metas: TensorMeta) -> None:
    require(p >= 0, f"{name}: p is {p}")
    for meta in metas:
        require(meta.dtype in _FULL, f"{name}: not defined on {meta.dtype}")
        require(meta.dtype == metas[0].dtype, f"{name}: dtypes {metas[0].dtype}, {meta.dtype}")


def _check_distances(name: str, grad: TensorMeta, found: TensorMeta, meta: TensorMeta) -> None:
    good = grad.shape == found.shape == meta.shape
    require(good, f"{name}: gradient {grad.shape}, distances {meta.shape}")


def _cdist_rule(a: TensorMeta, b: TensorMeta, p: float) -> TensorMeta:
    _check("cdist", p, a, b)
    good = a.ndim == b.ndim and a.ndim >= 2 and a.shape[:-2] == b.shape[:-2]
    require(
        bool(good and a.shape[-1] == b.shape[-1]),
        f"cdist: rows of shapes {a.shape} and {b.shape}; broadcast the batches first",
    )
    return a.like((*a.shape[:-1], b.shape[-2]))


def _cdist_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    count: Size = 3 * tensor_metas((result,))[0].numel() * args[0].shape[-1]
    return count


_leaf = partial(
    leaf,
    family="distance",
    reason="a product of matrices where eager has one, and rows otherwise, by the sizes",
    edge_cases=_EDGES,
    source="norms of the spaces l^p; scipy.spatial.distance's documentation",
)

_leaf(
    "cdist(Tensor a, Tensor b, float p) -> Tensor",
    _cdist_rule,
    lambda a, b, p: aten._cdist_forward.default(a, b, p, 2),
    "out[..., i, j] is the norm of order `p` of a[..., i, :] - b[..., j, :].",
    flops=_cdist_flops,
    shape="[..., rows of `a`, rows of `b`]",
    edge_cases={**_EDGES, "empty": "rows without entries are at distance 0"},
    differentiable="by cdist_backward",
)


def _cdist_back_rule(
    grad: TensorMeta, a: TensorMeta, b: TensorMeta, p: float, distance: TensorMeta
) -> TensorMeta:
    _check("cdist_backward", p, grad, a, b, distance)
    _check_distances("cdist_backward", grad, distance, _cdist_rule(a, b, p))
    return a.like(a.shape)


_leaf(
    "cdist_backward(Tensor grad, Tensor a, Tensor b, float p, Tensor distance) -> Tensor",
    _cdist_back_rule,
    lambda grad, a, b, p, d: aten._cdist_backward.default(
        grad.contiguous(), a.contiguous(), b.contiguous(), p, d
    ),
    "The gradient of `a` through `distance`, which is cdist(a, b, p).",
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[-1],
    shape="that of `a`, row-major",
)


def _pdist_rule(a: TensorMeta, p: float) -> TensorMeta:
    _check("pdist", p, a)
    require(a.ndim == 2, f"pdist: rows of shape {a.shape}, not 2-d")
    return a.like((a.shape[0] * (a.shape[0] - 1) // 2,))


_leaf(
    "pdist(Tensor a, float p) -> Tensor",
    _pdist_rule,
    lambda a, p: aten._pdist_forward.default(a.contiguous(), p),
    "The distances of order `p` of all pairs i < j of rows, in row-major order of (i, j).",
    flops=lambda args, result: 3 * tensor_metas((result,))[0].numel() * args[0].shape[1],
    shape="[n (n - 1) / 2] for n rows",
    differentiable="by pdist_backward",
)


def _pdist_back_rule(grad: TensorMeta, a: TensorMeta, p: float, distance: TensorMeta) -> TensorMeta:
    _check("pdist_backward", p, grad, a, distance)
    _check_distances("pdist_backward", grad, distance, _pdist_rule(a, p))
    return a.like(a.shape)


_leaf(
    "pdist_backward(Tensor grad, Tensor a, float p, Tensor distance) -> Tensor",
    _pdist_back_rule,
    lambda grad, a, p, d: aten._pdist_backward.default(grad, a.contiguous(), p, d),
    "The gradient of `a` through `distance`, which is pdist(a, p).",
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[1],
    shape="that of `a`, row-major",
)
