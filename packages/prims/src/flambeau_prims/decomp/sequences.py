"""Decompositions of ranges, frequencies and windows.

In: ATen's factory operations. Out: `iota` and arithmetic on it.
Invariant: numbers are formed in float64 (complex128) and rounded once, but where eager rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.creation import Dtype, factory, kind_of
from flambeau_prims.decomp.emit import Operand, is_number, p
from flambeau_prims.decomposition_table import Arguments, overloads
from flambeau_prims.promotion import compute_dtype, is_inexact, result_type

aten = torch.ops.aten


_ENDS = ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")


def _bound(x: Operand, dtype: torch.dtype, at: torch.device) -> Tensor:
    """One end, a number or a tensor of one element, which may be on another device."""
    if is_number(x):
        return p.full([], x, dtype=dtype, device=at)
    return e.brought(e.cast(p.reshape(x, []), dtype), at)


def _spaced(start: Operand, end: Operand, steps: int, dtype: torch.dtype, at: torch.device) -> Any:
    """`steps` numbers from `start` to `end`, before rounding; both ends are exact."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    bounds = [_bound(x, wide, at) for x in (start, end)]
    if steps < 2:
        return e.in_format(e.expand(bounds[0], [steps]), torch.contiguous_format)
    step = e.div(p.sub(bounds[1], bounds[0]), float(steps - 1))
    number = p.iota(steps, 0, 1, dtype=torch.float64, device=at)
    near = e.lt(number, steps // 2)
    from_end = e.sub(float(steps - 1), number)
    rising = e.add(bounds[0], e.mul(e.cast(number, wide), step))
    falling = e.sub(bounds[1], e.mul(e.cast(from_end, wide), step))
    return p.where(near, rising, falling)


def is_half(dtype: torch.dtype) -> bool:
    """Whether a real dtype is computed with in float32."""
    return compute_dtype(dtype) == torch.float32 and dtype != torch.float32


def _whole(x: Any, dtype: torch.dtype) -> Any:
    return int(x) if is_number(x) else e.cast(x, dtype)


def _dtype_of(start: Operand, end: Operand, dtype: Dtype) -> torch.dtype:
    """As given; else the default float dtype, or its complex one if a bound is complex."""
    default = result_type((1j if result_type((start, end)).is_complex else 1.0,))
    if dtype is not None and default.is_complex and not dtype.is_complex:
        raise RuntimeError(f"spaced numbers of {default} cannot be {dtype}")
    return dtype or default


@factory(*overloads("linspace", "default", *_ENDS))
def linspace(a: Arguments) -> Any:
    start, end, steps, at = a.start, a.end, a.steps, a.device
    kind = _dtype_of(start, end, a.dtype)
    if not is_inexact(kind):  # whole numbers run from one whole number to another
        start, end = (_whole(x, kind) for x in (start, end))
    if kind.is_floating_point or (at.type == "cuda" and not kind.is_complex):
        return _spaced_in_steps(start, end, steps, kind, at)
    return p.cast(_spaced(start, end, steps, kind, at), dtype=kind)


def _spaced_in_steps(
    start: Operand, end: Operand, steps: int, kind: torch.dtype, at: torch.device
) -> Tensor:
    """As eager's kernels round floats, and integers on a GPU: the step once in the result's dtype
    (float32 for integers), half precision after each operation, all others once. In float64 a
    product of a float32 step and a position is exact; of a float64 step it is rounded before it
    is added."""
    step_kind = kind if kind.is_floating_point else torch.float32
    half = is_half(kind)

    def rounded(x: Tensor) -> Tensor:
        return e.cast(e.cast(x, step_kind), torch.float64)

    def each(x: Tensor) -> Tensor:
        return rounded(x) if half else x

    bounds = [_bound(x, kind, at) for x in (start, end)]
    if steps < 2:
        return e.in_format(e.expand(bounds[0], [steps]), torch.contiguous_format)
    first, last = (rounded(x) for x in bounds)
    step = rounded(e.div(rounded(p.sub(last, first)), float(steps - 1)))
    number = p.iota(steps, 0, 1, dtype=torch.float64, device=at)
    rising = e.add(first, each(e.mul(each(number), step)))
    falling = e.sub(last, each(e.mul(each(e.sub(float(steps - 1), number)), step)))
    placed = p.where(e.lt(number, steps // 2), rising, falling)
    return p.cast(rounded(placed), dtype=kind)


@factory(*overloads("logspace", "default", *_ENDS))
def logspace(a: Arguments) -> Any:
    kind = _dtype_of(a.start, a.end, a.dtype)
    exponents = _spaced(a.start, a.end, a.steps, kind, a.device)
    return p.cast(p.pow(e.const(a.base, exponents), exponents), dtype=kind)


def _counted(n: int, start: int, at: torch.device) -> Tensor:
    return p.iota(n, start, 1, dtype=torch.float64, device=at)


@factory(aten.fft_fftfreq.default)
def fftfreq(a: Arguments) -> Any:
    n, at = a.n, a.device
    number = p.cat([_counted((n + 1) // 2, 0, at), _counted(n // 2, -(n // 2), at)], 0)
    return p.cast(e.mul(number, 1.0 / (n * a.d)), dtype=kind_of(a))


@factory(aten.fft_rfftfreq.default)
def rfftfreq(a: Arguments) -> Any:
    number = _counted(a.n // 2 + 1, 0, a.device)
    return p.cast(e.mul(number, 1.0 / (a.n * a.d)), dtype=kind_of(a))


def _window(a: Arguments, formula: Callable[[Tensor, int], Tensor]) -> Tensor:
    """`formula` of the positions 0 .. length - 1 and of the last position of a full period."""
    length = a.window_length
    if length < 2:
        return p.full([length], 1, dtype=kind_of(a), device=a.device)
    last = length - 1 if a.periodic is False else length
    return p.cast(formula(_counted(length, 0, a.device), last), dtype=kind_of(a))


def _cosines(*weights: float) -> Callable[[Tensor, int], Tensor]:
    """The sum of weights[k] cos(2 pi k i / last)."""

    def formula(number: Tensor, last: int) -> Tensor:
        total = e.const(weights[0], number)
        for k, weight in enumerate(weights[1:], 1):
            wave = p.cos(e.mul(number, 2.0 * math.pi * k / last))
            total = p.add(total, e.mul(wave, weight))
        return total

    return formula


def _bartlett(number: Tensor, last: int) -> Tensor:
    rising = e.mul(number, 2.0 / last)
    return p.minimum(rising, e.sub(2.0, rising))


def _kaiser(beta: float) -> Callable[[Tensor, int], Tensor]:
    def formula(number: Tensor, last: int) -> Tensor:
        across = e.sub(e.mul(number, 2.0 / last), 1.0)
        inside = e.maximum(e.sub(1.0, p.mul(across, across)), 0.0)
        return p.div(p.i0(e.mul(p.sqrt(inside), beta)), p.i0(e.const(beta, inside)))

    return formula


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


# name: the formula, of the arguments that its overloads have
_WINDOWS: dict[str, Callable[[Arguments], Callable[[Tensor, int], Tensor]]] = {
    "bartlett_window": lambda a: _bartlett,
    "blackman_window": lambda a: _cosines(0.42, -0.5, 0.08),
    "hann_window": lambda a: _cosines(0.5, -0.5),
    "hamming_window": lambda a: _cosines(_given(a.alpha, 0.54), -_given(a.beta, 0.46)),
    "kaiser_window": lambda a: _kaiser(_given(a.beta, 12.0)),
}


def _register_window(
    name: str, formula: Callable[[Arguments], Callable[[Tensor, int], Tensor]]
) -> None:
    kinds = ("default", "periodic", "periodic_alpha", "periodic_alpha_beta", "beta")

    @factory(*overloads(name, *kinds))
    def window(a: Arguments) -> Any:
        return _window(a, formula(a))


for _name, _formula in _WINDOWS.items():
    _register_window(_name, _formula)
