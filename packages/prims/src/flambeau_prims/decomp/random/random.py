"""Decompositions of random operators, by counter-based random numbers.

In: shapes and parameters. Out: numbers that depend on torch's generator through one drawn seed.
Invariant: not the numbers that eager draws; distributions are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import OpOverload, argument_names
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.creation import factory, home
from flambeau_prims.decomp.emit import p
from flambeau_prims.layout import Size
from flambeau_prims.promotion import compute_dtype, to_float
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


def _new(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(
        size: Sequence[Size],
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> Any:
        return _draw(op, size, dtype or torch.get_default_dtype(), home(device))

    return call


def _like(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(
        x: Tensor,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> Any:
        drawn = _draw(op, x.shape, dtype or x.dtype, device or x.device)
        return _laid_out(drawn, x, memory_format)

    return call


def _laid_out(drawn: Tensor, x: Tensor, memory_format: torch.memory_format | None) -> Tensor:
    """Numbers in the layout of the tensor they are drawn for, or in a format."""
    if memory_format in (None, torch.preserve_format) and not e.contiguous(x):
        return p.clone(drawn, order=e.layout_order(x))
    return e.in_format(drawn, memory_format)


factory(aten.rand.default, table=PHILOX_TABLE)(_new(p.philox_uniform))
factory(aten.randn.default, table=PHILOX_TABLE)(_new(p.philox_normal))
factory(aten.rand_like.default, table=PHILOX_TABLE)(_like(p.philox_uniform))
factory(aten.randn_like.default, table=PHILOX_TABLE)(_like(p.philox_normal))


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
    dtype = to_float(grad.dtype)
    g = e.cast(grad, compute_dtype(dtype))
    found = e.cast(p.mul(g, e.mul(e.cast(mask, g.dtype), scale)), dtype)
    return e.in_image_format(grad, found) if e.on_gpu(grad) else found


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


_LARGEST = 2**63 - 1


def _whole(
    shape: Sequence[Size], low: Size, high: Size, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Integers in [low, high); the span is at most 2^40, so that a remainder favours none."""
    bits = _draw(p.philox_bits, shape, torch.int64, device)
    positive = p.bitwise_and(*e.meet(bits, _LARGEST))
    return e.cast(e.add(p.remainder(*e.meet(positive, high - low)), low), dtype)


def _drawn(
    low: Size, high: Size, shape: Sequence[Size], dtype: torch.dtype, device: torch.device
) -> Any:
    known = isinstance(low, int) and isinstance(high, int)
    if known and not 0 < high - low <= 2**40:
        return NotImplemented
    return _whole(shape, low, high, dtype, device)


def _register_randint(op: OpOverload) -> None:
    """Bounds, size and model are found by their names: each overload has some of them."""
    names, _ = argument_names(op)

    def call(
        *args: Any,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        memory_format: torch.memory_format | None = None,
        **kwargs: Any,
    ) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        low, high, model = given.get("low", 0), given["high"], given.get("self")
        if model is None:
            return _drawn(low, high, given["size"], dtype or torch.int64, home(device))
        drawn = _drawn(low, high, model.shape, dtype or model.dtype, device or model.device)
        return drawn if drawn is NotImplemented else _laid_out(drawn, model, memory_format)

    factory(op, table=PHILOX_TABLE)(call)


for _op in (
    aten.randint.default,
    aten.randint.low,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
):
    _register_randint(_op)


@factory(aten.randperm.default, table=PHILOX_TABLE)
def randperm(
    n: Size, *, dtype: torch.dtype | None = torch.int64, device: torch.device | None = None
) -> Any:
    """The order of n random numbers of 64 bits, which are all different but once in 2^64 / n^2."""
    bits = _draw(p.philox_bits, [n], torch.int64, home(device))
    _, order = p.sort(bits, 0, False, True)
    return e.cast(order, dtype or torch.int64)


@decomposition(aten.random.to, table=PHILOX_TABLE)
def random_to(x: Tensor, to: int, *, generator: Any = None) -> Any:
    return random_from(x, 0, to, generator=generator)


@decomposition(getattr(aten.random, "from"), table=PHILOX_TABLE)
def random_from(x: Tensor, low: int, to: int | None, *, generator: Any = None) -> Any:
    if generator is not None or to is None:
        return NotImplemented
    drawn = _drawn(low, to, x.shape, x.dtype, x.device)
    return drawn if drawn is NotImplemented else _laid_out(drawn, x, None)


# The largest whole number that every dtype holds along with all below it.
_WHOLE = {torch.float64: 2**53, torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8}


@decomposition(aten.random.default, table=PHILOX_TABLE)
def random(x: Tensor, *, generator: Any = None) -> Any:
    if generator is not None or x.dtype.is_complex:
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
