"""Decompositions of distributions, by counter-based random numbers.

In: parameters as numbers or tensors. Out: numbers made of philox's uniform and normal ones.
Invariant: not the numbers that eager draws; distributions are the same. Distributions that are
drawn by rejection (gamma, Poisson, binomial) stay with ATen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.creation import home
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.decomp.random import random
from flambeau_prims.layout import Size
from flambeau_prims.promotion import compute_dtype, result_type
from flambeau_prims.table import PHILOX_TABLE, decomposition

aten = torch.ops.aten


def _wide(x: Tensor) -> torch.dtype:
    dtype = compute_dtype(x.dtype)
    return dtype if dtype.is_floating_point else torch.float32


def _uniform(x: Tensor) -> Tensor:
    """Numbers in (0, 1], one for each element of `x`: their logarithms are finite."""
    drawn = random._draw(p.philox_uniform, x.shape, _wide(x), x.device)
    return e.sub(1.0, drawn)


def _normal(x: Tensor) -> Tensor:
    return random._draw(p.philox_normal, x.shape, _wide(x), x.device)


def _filled(x: Tensor, drawn: Tensor) -> Tensor:
    return e.laid_out_as(x, e.cast(drawn, x.dtype))


def _philox(*names: Any) -> Callable[[Any], Any]:
    return decomposition(*names, table=PHILOX_TABLE)


@_philox(aten.exponential.default)
def exponential(x: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    return _filled(x, e.div(p.neg(p.log(_uniform(x))), lambd))


@_philox(aten.cauchy.default)
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    slope = p.tan(e.mul(e.sub(_uniform(x), 0.5), math.pi))
    return _filled(x, e.add(e.mul(slope, sigma), median))


@_philox(aten.geometric.default)
def geometric(x: Tensor, p_: float, *, generator: Any = None) -> Any:
    """The number of trials up to the first success: 1, 2, and so on."""
    if generator is not None or not 0.0 < p_ < 1.0:
        return NotImplemented
    trials = p.ceil(e.div(p.log(_uniform(x)), math.log1p(-p_)))
    return _filled(x, e.maximum(trials, 1.0))


@_philox(aten.log_normal.default)
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    return _filled(x, p.exp(e.add(e.mul(_normal(x), std), mean)))


@_philox(*overloads("normal", "Tensor_float", "float_Tensor", "Tensor_Tensor"))
def normal(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Any:
    dtype = result_type((mean, std)) if e.is_number(mean) else mean.dtype
    if generator is not None or not dtype.is_floating_point:
        return NotImplemented
    wide = compute_dtype(dtype)
    operands = [x if e.is_number(x) else e.cast(x, wide) for x in (mean, std)]
    centre, spread = e.meet(*operands)
    return e.cast(p.add(p.mul(_normal(centre), spread), centre), dtype)


@_philox(*overloads("normal", "float_float"))
def normal_of_size(
    mean: float,
    std: float,
    size: Sequence[Size],
    *,
    generator: Any = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Any:
    if generator is not None or pin_memory or layout not in (None, torch.strided):
        return NotImplemented
    kind = dtype or torch.get_default_dtype()
    if not kind.is_floating_point:
        return NotImplemented
    drawn = random._draw(p.philox_normal, size, compute_dtype(kind), home(device))
    return e.cast(e.add(e.mul(drawn, std), mean), kind)


@_philox(aten.bernoulli.Tensor)
def bernoulli_of(x: Tensor, p: Tensor, *, generator: Any = None) -> Any:
    if generator is not None or not p.dtype.is_floating_point:
        return NotImplemented
    chance = e.cast(p, compute_dtype(p.dtype))
    drawn = random._draw(e.p.philox_uniform, x.shape, chance.dtype, x.device)
    return _filled(x, e.cast(e.lt(drawn, chance), x.dtype))


@_philox(*overloads("rrelu_with_noise_functional", "default"))
def rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """(result, slopes): a slope drawn for each negative element, or the middle one."""
    if generator is not None:
        return NotImplemented
    if not training:
        slope = (lower + upper) / 2
        out = e.elementwise(lambda y: p.where(e.gt(y, 0.0), y, e.mul(y, slope)), (x,))
        return out, p.clone(noise)
    drawn = e.cast(e.add(e.mul(_uniform(x), upper - lower), lower), x.dtype)
    slopes = e.where(e.le(x, 0.0), drawn, 1.0)
    return e.elementwise(p.mul, (x, slopes)), slopes


@_philox(aten.multinomial.default)
def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Any:
    """Positions drawn by weight. Without replacement: those of the first exponential clocks to
    ring (Efraimidis and Spirakis 2006); with it: where uniform numbers fall among partial sums."""
    if generator is not None or not x.dtype.is_floating_point:
        return NotImplemented
    rows = e.widen(x) if x.ndim == 2 else p.reshape(e.widen(x), [1, x.shape[0]])
    n, classes = rows.shape
    if num_samples == 1 or not replacement:
        clocks = p.div(p.neg(p.log(_uniform(rows))), rows)
        picked = p.topk(e.where(e.eq(rows, 0.0), float("inf"), clocks), num_samples, 1, False, True)
        drawn = picked[1]
    else:
        sums = p.cumsum(rows, 1)
        total = p.slice(sums, [0, classes - 1], [n, classes], [1, 1])
        at = random._draw(p.philox_uniform, [n, num_samples], rows.dtype, x.device)
        at = p.mul(at, e.expand(total, at.shape))
        shape = [n, num_samples, classes]
        below = p.le(p.broadcast_in_dim(sums, shape, [0, 2]),
                     p.broadcast_in_dim(at, shape, [0, 1]))  # fmt: skip
        drawn = e.minimum(p.sum(e.cast(below, torch.int64), [2]), classes - 1)
    return drawn if x.ndim == 2 else p.reshape(drawn, [num_samples])
