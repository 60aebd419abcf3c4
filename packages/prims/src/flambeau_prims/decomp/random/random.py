"""Decompositions of random operators and distributions, by counter-based random numbers.

In: shapes and parameters. Out: numbers that depend on torch's generator through one drawn seed.
Invariant: not the numbers that eager draws; distributions are the same. Distributions that are
drawn by rejection (gamma, Poisson, binomial) stay with ATen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.creation import factory, kind_of
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomposition_table import (
    PHILOX_TABLE,
    Arguments,
    F,
    by_name,
    decomposition,
    overloads,
)
from flambeau_prims.promotion import compute_dtype, result_type, to_float
from flambeau_prims.shape_rules import Size, Sizes

aten = torch.ops.aten


def _draw(
    op: Callable[..., Tensor], shape: Sizes, dtype: torch.dtype, device: torch.device
) -> Tensor:
    seed = p.seed(device=device)
    return op(list(shape), seed, 0, dtype=dtype, device=device)


def _keep_mask(x: Tensor, probability: float) -> Tensor:
    """True with the given probability, for each element of `x`."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return e.lt(_draw(p.philox_uniform, x.shape, dtype, x.device), probability)


def _laid_out(drawn: Tensor, x: Tensor, memory_format: torch.memory_format | None) -> Tensor:
    """Numbers in the layout of the tensor they are drawn for, or in a format."""
    if memory_format in (None, torch.preserve_format):
        return e.laid_out_as(x, drawn)
    return e.in_format(drawn, memory_format)


def _made(a: Arguments, draw: Callable[..., Any], dtype: torch.dtype | None = None) -> Any:
    """What is drawn for a shape, a dtype and a device, by a factory or like a model."""
    kind = a.dtype or dtype if a.self is None else kind_of(a)
    if a.self is None:
        return draw(a.size, kind or torch.get_default_dtype(), a.device)
    drawn = draw(a.self.shape, kind, a.device)
    return drawn if drawn is NotImplemented else _laid_out(drawn, a.self, a.memory_format)


@factory(aten.rand.default, aten.rand_like.default, table=PHILOX_TABLE)
def rand(a: Arguments) -> Any:
    return _made(a, functools.partial(_draw, p.philox_uniform))


@factory(aten.randn.default, aten.randn_like.default, table=PHILOX_TABLE)
def randn(a: Arguments) -> Any:
    return _made(a, functools.partial(_draw, p.philox_normal))


def _philox(*ops: Any) -> Callable[[F], F]:
    """Register a decomposition of calls that have no generator of their own."""

    def register(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, generator: Any = None, **kwargs: Any) -> Any:
            return NotImplemented if generator is not None else function(*args, **kwargs)

        decomposition(*ops, table=PHILOX_TABLE)(call)
        return function

    return register


@_philox(aten.native_dropout.default)
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0.0:
        return e.p.clone(x), e.filled(x, x.shape, True, torch.bool)
    mask = _keep_mask(x, 1.0 - p)
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    wide = e.widen(x)
    kept = e.p.mul(e.mul(wide, scale), e.cast(mask, wide.dtype))
    return e.cast(kept, x.dtype), mask


@decomposition(aten.native_dropout_backward.default)
def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Any:
    dtype = to_float(grad.dtype)
    g = e.cast(grad, compute_dtype(dtype))
    found = e.cast(p.mul(g, e.mul(e.cast(mask, g.dtype), scale)), dtype)
    return e.in_image_format(grad, found) if e.on_gpu(grad) else found


@_philox(aten.bernoulli.p)
def bernoulli_p(x: Tensor, p: float = 0.5) -> Any:
    return e.cast(_keep_mask(x, p), x.dtype)


@_philox(aten.bernoulli.default)
def bernoulli(x: Tensor) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    dtype = compute_dtype(x.dtype)
    drawn = _draw(p.philox_uniform, x.shape, dtype, x.device)
    return e.cast(p.lt(drawn, e.cast(x, dtype)), x.dtype)


@_philox(aten.uniform.default)
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0) -> Any:
    drawn = _draw(p.philox_uniform, x.shape, compute_dtype(x.dtype), x.device)
    return e.cast(e.add(e.mul(drawn, high - low), low), x.dtype)


@_philox(aten.normal_functional.default)
def normal(x: Tensor, mean: float = 0.0, std: float = 1.0) -> Any:
    drawn = _draw(p.philox_normal, x.shape, compute_dtype(x.dtype), x.device)
    return e.cast(e.add(e.mul(drawn, std), mean), x.dtype)


_LARGEST = 2**63 - 1


def _whole(shape: Sizes, low: Size, high: Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Integers in [low, high); the span is at most 2^40, so that a remainder favours none."""
    bits = _draw(p.philox_bits, shape, torch.int64, device)
    positive = p.bitwise_and(*e.meet(bits, _LARGEST))
    return e.cast(e.add(p.remainder(*e.meet(positive, high - low)), low), dtype)


def _drawn(low: Size, high: Size, shape: Sizes, dtype: torch.dtype, device: torch.device) -> Any:
    known = isinstance(low, int) and isinstance(high, int)
    if known and not 0 < high - low <= 2**40:
        return NotImplemented
    return _whole(shape, low, high, dtype, device)


@factory(
    aten.randint.default,
    aten.randint.low,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
    table=PHILOX_TABLE,
)
def randint(a: Arguments) -> Any:
    low = 0 if a.low is None else a.low
    return _made(a, functools.partial(_drawn, low, a.high), torch.int64)


@factory(aten.randperm.default, table=PHILOX_TABLE)
def randperm(a: Arguments) -> Any:
    """The order of n random numbers of 64 bits, which are all different but once in 2^64 / n^2."""
    bits = _draw(p.philox_bits, [a.n], torch.int64, a.device)
    _, order = p.sort(bits, 0, False, True)
    return e.cast(order, a.dtype or torch.int64)


@_philox(aten.random.to)
def random_to(x: Tensor, to: int) -> Any:
    return random_from(x, 0, to)


@_philox(getattr(aten.random, "from"))
def random_from(x: Tensor, low: int, to: int | None) -> Any:
    if to is None:
        return NotImplemented
    drawn = _drawn(low, to, x.shape, x.dtype, x.device)
    return drawn if drawn is NotImplemented else _laid_out(drawn, x, None)


# The largest whole number that every dtype holds along with all below it.
_WHOLE = {torch.float64: 2**53, torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8}


@_philox(aten.random.default)
def random(x: Tensor) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    if x.dtype == torch.int64 or x.dtype == torch.float64:
        bits = _draw(p.philox_bits, x.shape, torch.int64, x.device)
        kept = _LARGEST if x.dtype == torch.int64 else 2**53 - 1
        return _laid_out(e.cast(p.bitwise_and(*e.meet(bits, kept)), x.dtype), x, None)
    if x.dtype == torch.bool:
        end = 2
    else:
        end = _WHOLE.get(x.dtype) or torch.iinfo(x.dtype).max + 1
    return _laid_out(_whole(x.shape, 0, end, x.dtype, x.device), x, None)


def _wide(x: Tensor) -> torch.dtype:
    dtype = compute_dtype(x.dtype)
    return dtype if dtype.is_floating_point else torch.float32


def _uniform(x: Tensor) -> Tensor:
    """Numbers in (0, 1], one for each element of `x`: their logarithms are finite."""
    drawn = _draw(p.philox_uniform, x.shape, _wide(x), x.device)
    return e.sub(1.0, drawn)


def _normal(x: Tensor) -> Tensor:
    return _draw(p.philox_normal, x.shape, _wide(x), x.device)


def _filled(x: Tensor, drawn: Tensor) -> Tensor:
    return e.laid_out_as(x, e.cast(drawn, x.dtype))


@_philox(aten.exponential.default)
def exponential(x: Tensor, lambd: float = 1.0) -> Any:
    return _filled(x, e.div(p.neg(p.log(_uniform(x))), lambd))


@_philox(aten.cauchy.default)
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0) -> Any:
    slope = p.tan(e.mul(e.sub(_uniform(x), 0.5), math.pi))
    return _filled(x, e.add(e.mul(slope, sigma), median))


@_philox(aten.geometric.default)
def geometric(x: Tensor, p_: float) -> Any:
    """The number of trials up to the first success: 1, 2, and so on."""
    if not 0.0 < p_ < 1.0:
        return NotImplemented
    trials = p.ceil(e.div(p.log(_uniform(x)), math.log1p(-p_)))
    return _filled(x, e.maximum(trials, 1.0))


@_philox(aten.log_normal.default)
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0) -> Any:
    return _filled(x, p.exp(e.add(e.mul(_normal(x), std), mean)))


@_philox(*overloads("normal", "Tensor_float", "float_Tensor", "Tensor_Tensor"))
def normal_of(mean: Any, std: Any = 1.0) -> Any:
    dtype = result_type((mean, std)) if e.is_number(mean) else mean.dtype
    if not dtype.is_floating_point:
        return NotImplemented
    wide = compute_dtype(dtype)
    operands = [x if e.is_number(x) else e.cast(x, wide) for x in (mean, std)]
    centre, spread = e.meet(*operands)
    return e.cast(p.add(p.mul(_normal(centre), spread), centre), dtype)


@factory(*overloads("normal", "float_float"), table=PHILOX_TABLE)
def normal_of_size(a: Arguments) -> Any:
    kind = kind_of(a)
    if a.generator is not None or not kind.is_floating_point:
        return NotImplemented
    drawn = _draw(p.philox_normal, a.size, compute_dtype(kind), a.device)
    return e.cast(e.add(e.mul(drawn, a.std), a.mean), kind)


@_philox(aten.bernoulli.Tensor)
def bernoulli_of(x: Tensor, p: Tensor) -> Any:
    if not p.dtype.is_floating_point:
        return NotImplemented
    chance = e.cast(p, compute_dtype(p.dtype))
    drawn = _draw(e.p.philox_uniform, x.shape, chance.dtype, x.device)
    return _filled(x, e.cast(e.lt(drawn, chance), x.dtype))


@by_name(*overloads("rrelu_with_noise_functional", "default"), table=PHILOX_TABLE)
def rrelu(a: Arguments) -> Any:
    """(result, slopes): a slope drawn for each negative element, or the middle one."""
    if a.generator is not None:
        return NotImplemented
    x, lower, upper = a.self, a.lower, a.upper
    if not a.training:
        slope = (lower + upper) / 2
        out = e.elementwise(lambda y: p.where(e.gt(y, 0.0), y, e.mul(y, slope)), (x,))
        return out, p.clone(a.noise)
    drawn = e.cast(e.add(e.mul(_uniform(x), upper - lower), lower), x.dtype)
    slopes = e.where(e.le(x, 0.0), drawn, 1.0)
    return e.elementwise(p.mul, (x, slopes)), slopes


@_philox(aten.multinomial.default)
def multinomial(x: Tensor, num_samples: int, replacement: bool = False) -> Any:
    """Positions drawn by weight. Without replacement: those of the first exponential clocks to
    ring (Efraimidis and Spirakis 2006); with it: where uniform numbers fall among partial sums."""
    if not x.dtype.is_floating_point:
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
        at = _draw(p.philox_uniform, [n, num_samples], rows.dtype, x.device)
        at = p.mul(at, e.expand(total, at.shape))
        shape = [n, num_samples, classes]
        below = p.le(p.broadcast_in_dim(sums, shape, [0, 2]),
                     p.broadcast_in_dim(at, shape, [0, 1]))  # fmt: skip
        drawn = e.minimum(p.sum(e.cast(below, torch.int64), [2]), classes - 1)
    return drawn if x.ndim == 2 else p.reshape(drawn, [num_samples])
