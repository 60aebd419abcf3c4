"""Library primitives of distances and their gradients.

In: batches of rows of one dtype, the order `p` of a norm. Out: norms of differences of rows.
Invariant: `p` is not negative; 0 counts the entries that differ, infinity takes the largest.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_prims._op import MetaResult, define, in_layout, metas_of, require, tensor_metas
from flambeau_prims.layout import Size, TensorMeta

aten = torch.ops.aten
_FULL = frozenset({torch.float32, torch.float64})
_EDGES = {
    "nan": "gives NaN",
    "ties": "the gradient of a distance of 0 is 0",
    "note": "`p` 0 counts entries that differ, infinity takes the largest",
}
_SOURCE = "norms of the spaces l^p; scipy.spatial.distance's documentation"


def _check(name: str, p: float, *metas: TensorMeta) -> None:
    require(p >= 0, f"{name}: p is {p}")
    for meta in metas:
        require(meta.dtype in _FULL, f"{name}: not defined on {meta.dtype}")
        require(meta.dtype == metas[0].dtype, f"{name}: dtypes {metas[0].dtype}, {meta.dtype}")


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


define(
    "cdist(Tensor a, Tensor b, float p) -> Tensor",
    rule=_cdist_rule,
    eager=lambda a, b, p: in_layout(
        aten._cdist_forward.default(a, b, p, 2), _cdist_rule(metas_of(a), metas_of(b), p)
    ),
    tags=("library",),
    doc="out[..., i, j] is the norm of order `p` of a[..., i, :] - b[..., j, :].",
    flops=_cdist_flops,
    shape="[..., rows of `a`, rows of `b`]",
    edge_cases={**_EDGES, "empty": "rows without entries are at distance 0"},
    source=_SOURCE,
    differentiable="by cdist_backward",
)


def _cdist_back_rule(
    grad: TensorMeta, a: TensorMeta, b: TensorMeta, p: float, distance: TensorMeta
) -> TensorMeta:
    _check("cdist_backward", p, grad, a, b, distance)
    expected = _cdist_rule(a, b, p)
    require(
        grad.shape == distance.shape == expected.shape,
        f"cdist_backward: gradient {grad.shape}, distances {expected.shape}",
    )
    return a.like(a.shape)


def _cdist_back(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, d: Any) -> Any:
    result = aten._cdist_backward.default(grad.contiguous(), a.contiguous(), b.contiguous(), p, d)
    return in_layout(result, metas_of(a).like(a.shape))


define(
    "cdist_backward(Tensor grad, Tensor a, Tensor b, float p, Tensor distance) -> Tensor",
    rule=_cdist_back_rule,
    eager=_cdist_back,
    tags=("library",),
    doc="The gradient of `a` through `distance`, which is cdist(a, b, p).",
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[-1],
    shape="that of `a`, row-major",
    edge_cases=_EDGES,
    source=_SOURCE,
)


def _pdist_rule(a: TensorMeta, p: float) -> TensorMeta:
    _check("pdist", p, a)
    require(a.ndim == 2, f"pdist: rows of shape {a.shape}, not 2-d")
    return a.like((a.shape[0] * (a.shape[0] - 1) // 2,))


define(
    "pdist(Tensor a, float p) -> Tensor",
    rule=_pdist_rule,
    eager=lambda a, p: in_layout(
        aten._pdist_forward.default(a.contiguous(), p), _pdist_rule(metas_of(a), p)
    ),
    tags=("library",),
    doc="The distances of order `p` of all pairs i < j of rows, in row-major order of (i, j).",
    flops=lambda args, result: 3 * tensor_metas((result,))[0].numel() * args[0].shape[1],
    shape="[n (n - 1) / 2] for n rows",
    edge_cases=_EDGES,
    source=_SOURCE,
    differentiable="by pdist_backward",
)


def _pdist_back_rule(grad: TensorMeta, a: TensorMeta, p: float, distance: TensorMeta) -> TensorMeta:
    _check("pdist_backward", p, grad, a, distance)
    expected = _pdist_rule(a, p)
    require(
        grad.shape == distance.shape == expected.shape,
        f"pdist_backward: gradient {grad.shape}, distances {expected.shape}",
    )
    return a.like(a.shape)


define(
    "pdist_backward(Tensor grad, Tensor a, float p, Tensor distance) -> Tensor",
    rule=_pdist_back_rule,
    eager=lambda grad, a, p, d: in_layout(
        aten._pdist_backward.default(grad, a.contiguous(), p, d), metas_of(a).like(a.shape)
    ),
    tags=("library",),
    doc="The gradient of `a` through `distance`, which is pdist(a, p).",
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[1],
    shape="that of `a`, row-major",
    edge_cases=_EDGES,
    source=_SOURCE,
)
