"""Decompositions of complex arithmetic and Fourier transforms.

In: ATen's operations. Out: the complex prims, transforms of a library, which scales as it goes.
Invariant: a conjugate or a negative is computed, no result is a view that carries a mark for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, elementwise, p
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.promotion import Promotion
from flambeau_prims.shape_rules import Size

aten = torch.ops.aten


def _joined(re: Tensor, im: Tensor) -> Tensor:
    return p.complex(*e.meet(re, im))


@decomposition(aten.complex.default)
def complex_(re: Tensor, im: Tensor) -> Any:
    if re.dtype != im.dtype:
        raise RuntimeError(
            f"complex: expected one dtype for both parts, got {re.dtype}, {im.dtype}"
        )
    return e.laid_out_by((re, im), _joined(re, im))


@decomposition(aten.polar.default)
def polar(radius: Tensor, angle: Tensor) -> Any:
    if radius.dtype != angle.dtype:
        raise RuntimeError(f"polar: expected one dtype, got {radius.dtype} and {angle.dtype}")
    r, t = e.meet(radius, angle)
    value = _joined(p.mul(r, p.cos(t)), p.mul(r, p.sin(t)))
    return e.laid_out_by((radius, angle), value)


@decomposition(
    aten._conj.default,
    aten._conj_copy.default,
    aten._conj_physical.default,
    aten.conj_physical.default,
)
def conj(x: Tensor) -> Tensor:
    return p.conj(x) if x.dtype.is_complex else x


@decomposition(aten._neg_view.default, aten._neg_view_copy.default)
def neg_view(x: Tensor) -> Tensor:
    return p.neg(x)


@decomposition(aten.view_as_real.default, aten.view_as_real_copy.default)
def view_as_real(x: Tensor) -> Tensor:
    return p.view_as_real(x)


@decomposition(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def view_as_complex(x: Tensor) -> Tensor:
    return p.view_as_complex(x)


@decomposition(aten.angle.default)
def angle(x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        return e.in_format(p.atan2(p.imag(x), p.real(x)), torch.contiguous_format)
    if x.dtype.is_floating_point:  # pi for negative numbers, 0 for others and for -0
        return elementwise(_angle_of_real, (x,))
    return elementwise(_angle_of_real, (x,), Promotion.FLOAT)


def _angle_of_real(x: Tensor) -> Tensor:
    turned = e.where(e.lt(x, 0.0), math.pi, e.const(0.0, x))
    return p.where(p.isnan(x), x, turned)


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of a complex tensor."""
    return p.real(x), p.imag(x)


def squared_modulus(x: Tensor) -> Tensor:
    """`|x|^2` in the real dtype; of a real tensor its square."""
    if not x.dtype.is_complex:
        return p.mul(x, x)
    re, im = parts(x)
    return p.add(p.mul(re, re), p.mul(im, im))


def _dims(x: Tensor, dim: Sequence[int]) -> list[int]:
    return [canonical(d, x.ndim) for d in dim]


@decomposition(aten._fft_c2c.default)
def c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    dims = _dims(x, dim)
    if not dims:
        return e.copy_in_format(x, None)
    return p.fft_c2c(x, dims, forward, normalization)


@decomposition(aten._fft_r2c.default)
def r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    return p.fft_r2c(x, _dims(x, dim), onesided, normalization)


@decomposition(aten._fft_c2r.default)
def c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: Size) -> Tensor:
    return p.fft_c2r(x, _dims(x, dim), last_dim_size, normalization)
