"""Decompositions of synchronised batch normalisation.

In: the overloads of torch's SyncBatchNorm. Out: statistics, the normalized batch, its gradients.
Invariant: `invstd` is 1 / sqrt(variance + eps) with the biased variance; counts weigh the
statistics of each device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p, spread
from flambeau_prims.decomp.nn.batch_norm import all_but_channel
from flambeau_prims.decomp.nn.normalization import affine, rstd_of
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.decomp.reduction import moments
from flambeau_prims.table import decomposition

aten = torch.ops.aten


@decomposition(*overloads("batch_norm_stats", "default"))
def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = moments(e.widen(x), all_but_channel(x), 0.0)
    return mean, rstd_of(variance, eps)


@decomposition(*overloads("batch_norm_elemt", "default"))
def normalize(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    del eps  # `invstd` has it
    wide, dims = e.widen(x), all_but_channel(x)
    shift, scale = (spread(e.cast(t, wide.dtype), wide.shape, dims) for t in (mean, invstd))
    out = affine(p.mul(p.sub(wide, shift), scale), weight, bias, [1])
    return e.in_image_format(x, e.cast(out, x.dtype))


@decomposition(*overloads("batch_norm_backward_reduce", "default"))
def backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> Any:
    """(sum of g, sum of g (x - mean), gradient of the weight, of the bias)."""
    g, wide = e.widen(grad, x)
    dims = all_but_channel(x)
    centred = p.sub(wide, spread(e.cast(mean, wide.dtype), wide.shape, dims))
    total, along = p.sum(g, dims), p.sum(p.mul(g, centred), dims)
    own = wide.dtype if weight is None else weight.dtype
    none = p.full([0], 0, dtype=own, device=x.device)
    return (
        total if input_g else none,
        along if input_g else none,
        e.cast(p.mul(along, e.cast(invstd, along.dtype)), own) if weight_g else none,
        e.cast(total, own) if bias_g else none,
    )


@decomposition(*overloads("batch_norm_backward_elemt", "default"))
def backward_elemt(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """(g - mean(g) - (x - mean) invstd**2 mean(g (x - mean))) invstd weight."""
    g, wide = e.widen(grad, x)
    dims, dtype = all_but_channel(x), wide.dtype
    number = p.sum(e.cast(count, dtype), list(range(count.ndim)))
    scale, shift = e.cast(invstd, dtype), e.cast(mean, dtype)
    average, along = (e.div(e.cast(t, dtype), number) for t in (sum_dy, sum_dy_xmu))
    pull = p.mul(along, p.mul(scale, scale))
    gain = scale if weight is None else p.mul(scale, e.cast(weight, dtype))
    average, shift, pull, gain = (spread(t, wide.shape, dims) for t in (average, shift, pull, gain))
    inner = p.sub(p.sub(g, average), p.mul(p.sub(wide, shift), pull))
    return e.in_image_format(x, e.cast(p.mul(inner, gain), x.dtype))
