"""Decompositions of Fourier transforms, with normalisation.

In: ATen's transforms, which name a normalization by a number. Out: the transforms of the dialect,
which apply none, and a product with the scale.
Invariant: the scale is formed in double precision and applied once, after all transforms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.layout import Size
from flambeau_prims.table import decomposition

aten = torch.ops.aten

# ATen's number for a normalization: the power of n that n transformed elements are divided by.
_POWERS = {0: 0.0, 1: 0.5, 2: 1.0}


def _scaled(x: Tensor, lengths: Sequence[Size], normalization: int) -> Tensor:
    power = _POWERS[normalization]
    if not power:
        return x
    scale = math.prod(int(n) for n in lengths) ** -power
    if not x.dtype.is_complex:
        return e.mul(x, scale)
    if e.on_gpu(x):  # by a complex number, as eager does there: NaN of an infinite part
        return e.mul(x, complex(scale))
    return p.view_as_complex(e.mul(p.view_as_real(x), scale))


def _dims(x: Tensor, dim: Sequence[int]) -> list[int]:
    return [canonical(d, x.ndim) for d in dim]


@decomposition(aten._fft_c2c.default)
def c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    dims = _dims(x, dim)
    if not dims:
        return e.copy_in_format(x, None)
    return _scaled(p.fft_c2c(x, dims, forward), [x.shape[d] for d in dims], normalization)


@decomposition(aten._fft_r2c.default)
def r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    dims = _dims(x, dim)
    return _scaled(p.fft_r2c(x, dims, onesided), [x.shape[d] for d in dims], normalization)


@decomposition(aten._fft_c2r.default)
def c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Size) -> Tensor:
    dims = _dims(x, dim)
    lengths = [*(x.shape[d] for d in dims[:-1]), last_dim_size]
    return _scaled(p.fft_c2r(x, dims, last_dim_size), lengths, normalization)
