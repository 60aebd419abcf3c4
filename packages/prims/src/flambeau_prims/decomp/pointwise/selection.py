"""Decompositions that choose among values: masks, bounds, replacements, signs of infinity.

In: tensors, numbers, conditions. Out: prims. Invariant: a value that is chosen is not rounded.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import NUMBERS, Operand, elementwise, is_number, p
from flambeau_prims.decomp.pointwise.declared import formula
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.promotion import result_type

aten = torch.ops.aten


@decomposition(aten.logical_not.default)
def logical_not(x: Tensor) -> Tensor:
    return p.logical_not(x) if x.dtype == torch.bool else e.eq(x, 0)


def _bool(condition: Tensor) -> Tensor:
    return e.cast(condition, torch.bool)


@decomposition(aten.where.self)
def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    dtype = result_type((a, b))
    home = e.home_of([x for x in (condition, a, b) if not isinstance(x, NUMBERS)])
    a, b = (x if isinstance(x, NUMBERS) else e.brought(e.cast(x, dtype), home) for x in (a, b))
    condition = e.brought(condition, home)
    if is_number(a) and is_number(b):
        a = e.filled(condition, [], a, dtype)
    return e.laid_out_by((condition, a, b), e.where(_bool(condition), a, b))


@decomposition(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    placed, mask = e.meet(x, mask)
    if isinstance(value, NUMBERS):
        filled = e.const(e.fitting(value, x.dtype), placed)
    else:
        home = value if value.device == x.device else p.device_put(value, device=x.device)
        filled = e.expand(e.cast(home, x.dtype), placed.shape)
    # eager fills a row-major copy
    return e.in_format(p.where(_bool(mask), filled, placed), torch.contiguous_format)


def at_least(x: Tensor, bound: Tensor) -> Tensor:
    """`x`, or the bound where `x` is below it: of equal numbers, zeros of either sign, `x`."""
    return p.where(p.lt(x, bound), bound, x)


def at_most(x: Tensor, bound: Tensor) -> Tensor:
    """`x`, or the bound where `x` is above it: of equal numbers, zeros of either sign, `x`."""
    return p.where(p.lt(bound, x), bound, x)


def _is_nan(number: Any) -> bool:
    return isinstance(number, float) and math.isnan(number)


def clamp_to(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """`x` between numbers, either of which may be None. NaN among both numbers is the result; as
    the only one it is too on a CPU, and is no bound on a GPU."""
    bounds = [y for y in (low, high) if y is not None]
    for bound in bounds:
        e.fitting(bound, result_type((x, *bounds)))
    if (len(bounds) == 2 or not e.on_gpu(x)) and any(map(_is_nan, bounds)):
        return elementwise(lambda y, *_: e.const(math.nan, y), (x, *bounds), parameters=True)
    both = [b for b in (("low", low), ("high", high)) if b[1] is not None]

    if e.on_gpu(x):  # NaN is no bound there, and 0 is above -0
        both = [b for b in both if not _is_nan(b[1])]
        lift, lower = p.maximum, p.minimum
    else:
        lift, lower = at_least, at_most

    def bounded(y: Tensor, *numbers: Tensor) -> Tensor:
        for (side, _), number in zip(both, numbers, strict=True):
            y = lift(y, number) if side == "low" else lower(y, number)
        return y

    numbers = [number for _, number in both]
    return elementwise(bounded, (x, *numbers), narrow=not e.on_gpu(x), parameters=True)


@decomposition(aten.clamp.default, aten.clamp.Tensor)
def clamp(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Any:
    if min is None and max is None:
        return NotImplemented
    if all(bound is None or is_number(bound) for bound in (min, max)):
        return clamp_to(x, min, max)
    if min is None or max is None:
        op, bound = (p.maximum, min) if max is None else (p.minimum, max)
        return elementwise(op, (x, bound))
    return elementwise(lambda a, low, high: p.minimum(p.maximum(a, low), high), (x, min, max))


@decomposition(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(x: Tensor, min: Operand) -> Tensor:
    return clamp_to(x, min) if is_number(min) else elementwise(p.maximum, (x, min))


@decomposition(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(x: Tensor, max: Operand) -> Tensor:
    return clamp_to(x, None, max) if is_number(max) else elementwise(p.minimum, (x, max))


@decomposition(aten.nan_to_num.default)
def nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    if not x.dtype.is_floating_point:
        return e.copy_in_format(x, None)
    limits = torch.finfo(x.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf

    def replace(y: Tensor) -> Tensor:
        y = e.where(p.isnan(y), 0.0 if nan is None else nan, y)
        y = e.where(e.eq(y, float("inf")), high, y)
        return e.where(e.eq(y, float("-inf")), low, y)

    return e.laid_out_as(x, elementwise(replace, (x,)))


@formula(aten.heaviside.default)
def heaviside(x: Tensor, at_zero: Tensor) -> Tensor:
    above = e.cast(e.gt(x, 0), x.dtype)
    return p.where(e.eq(x, 0), at_zero, above)


def _infinite(x: Tensor, value: float) -> Tensor:
    if x.dtype.is_floating_point:
        return e.eq(x, value)
    return p.ne(x, x)  # an integer never is


@decomposition(aten.isposinf.default)
def isposinf(x: Tensor) -> Tensor:
    return _infinite(x, float("inf"))


@decomposition(aten.isneginf.default)
def isneginf(x: Tensor) -> Tensor:
    return _infinite(x, float("-inf"))
