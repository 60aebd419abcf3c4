"""Random operations through a seed and the philox prims (asked for by `random="philox"`).

In: shapes and parameters. Out: numbers that depend on torch's generator through one drawn seed.
Invariant: not the numbers that eager draws; distributions are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.layout import Size
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.table import PHILOX_TABLE, decomposition

aten = torch.ops.aten


def _draw(
    op: Callable[..., Tensor], shape: Sequence[Size], dtype: torch.dtype, device: torch.device
) -> Tensor:
    seed = p.seed(device=device)
    return op(list(shape), seed, 0, dtype=dtype, device=device)


def _keep_mask(x: Tensor, probability: float) -> Tensor:
    """True with the given probability, for each element of `x`."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return e.lt(_draw(p.philox_uniform, x.shape, dtype, x.device), probability)


def _factory(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(
        size: Sequence[Size],
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> Any:
        if pin_memory or layout not in (None, torch.strided):
            return NotImplemented
        where = torch.get_default_device() if device is None else torch.device(device)
        return _draw(op, size, dtype or torch.get_default_dtype(), where)

    return call


def _like(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(
        x: Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> Any:
        if pin_memory or layout not in (None, torch.strided):
            return NotImplemented
        drawn = _draw(op, x.shape, dtype or x.dtype, device or x.device)
        if memory_format in (None, torch.preserve_format) and not e.contiguous(x):
            return p.clone(drawn, order=e.layout_order(x))
        return e.in_format(drawn, memory_format)

    return call


decomposition(aten.rand.default, table=PHILOX_TABLE)(_factory(p.philox_uniform))
decomposition(aten.randn.default, table=PHILOX_TABLE)(_factory(p.philox_normal))
decomposition(aten.rand_like.default, table=PHILOX_TABLE)(_like(p.philox_uniform))
decomposition(aten.randn_like.default, table=PHILOX_TABLE)(_like(p.philox_normal))


@decomposition(aten.native_dropout.default, table=PHILOX_TABLE)
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0.0:
        return e.p.clone(x), e.p.full(list(x.shape), True, dtype=torch.bool, device=x.device)
    mask = _keep_mask(x, 1.0 - p)
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    wide = e.widen(x)
    kept = e.p.mul(e.mul(wide, scale), e.cast(mask, wide.dtype))
    return e.cast(kept, x.dtype), mask


@decomposition(aten.native_dropout_backward.default)
def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Any:
    if not grad.dtype.is_floating_point:
        return NotImplemented
    g = e.widen(grad)
    return e.cast(p.mul(g, e.mul(e.cast(mask, g.dtype), scale)), grad.dtype)


@decomposition(aten.bernoulli.p, table=PHILOX_TABLE)
def bernoulli_p(x: Tensor, p: float = 0.5, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    return e.cast(_keep_mask(x, p), x.dtype)


@decomposition(aten.bernoulli.default, table=PHILOX_TABLE)
def bernoulli(x: Tensor, *, generator: Any = None) -> Any:
    if generator is not None or not x.dtype.is_floating_point:
        return NotImplemented
    dtype = compute_dtype(x.dtype)
    drawn = _draw(p.philox_uniform, x.shape, dtype, x.device)
    return e.cast(p.lt(drawn, e.cast(x, dtype)), x.dtype)


@decomposition(aten.uniform.default, table=PHILOX_TABLE)
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    drawn = _draw(p.philox_uniform, x.shape, compute_dtype(x.dtype), x.device)
    return e.cast(e.add(e.mul(drawn, high - low), low), x.dtype)


@decomposition(aten.normal_functional.default, table=PHILOX_TABLE)
def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    drawn = _draw(p.philox_normal, x.shape, compute_dtype(x.dtype), x.device)
    return e.cast(e.add(e.mul(drawn, std), mean), x.dtype)
