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
from flambeau_prims.decomp.creation import Device, Dtype, factory, home
from flambeau_prims.decomp.emit import Operand, is_number, p
from flambeau_prims.promotion import compute_dtype, is_inexact, result_type

aten = torch.ops.aten


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
        return e.expand(bounds[0], [steps])
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


@factory(
    aten.linspace.default,
    aten.linspace.Tensor_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Scalar_Tensor,
)
def linspace(
    start: Operand, end: Operand, steps: int, *, dtype: Dtype = None, device: Device = None
) -> Any:
    kind = _dtype_of(start, end, dtype)
    at = home(device)
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
        return e.expand(bounds[0], [steps])
    first, last = (rounded(x) for x in bounds)
    step = rounded(e.div(rounded(p.sub(last, first)), float(steps - 1)))
    number = p.iota(steps, 0, 1, dtype=torch.float64, device=at)
    rising = e.add(first, each(e.mul(each(number), step)))
    falling = e.sub(last, each(e.mul(each(e.sub(float(steps - 1), number)), step)))
    placed = p.where(e.lt(number, steps // 2), rising, falling)
    return p.cast(rounded(placed), dtype=kind)


@factory(
    aten.logspace.default,
    aten.logspace.Tensor_Tensor,
    aten.logspace.Tensor_Scalar,
    aten.logspace.Scalar_Tensor,
)
def logspace(
    start: Operand,
    end: Operand,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Dtype = None,
    device: Device = None,
) -> Any:
    kind = _dtype_of(start, end, dtype)
    exponents = _spaced(start, end, steps, kind, home(device))
    return p.cast(p.pow(e.const(base, exponents), exponents), dtype=kind)


def _counted(n: int, start: int, at: torch.device) -> Tensor:
    return p.iota(n, start, 1, dtype=torch.float64, device=at)


@factory(aten.fft_fftfreq.default)
def fftfreq(n: int, d: float = 1.0, *, dtype: Dtype = None, device: Device = None) -> Any:
    at = home(device)
    number = p.cat([_counted((n + 1) // 2, 0, at), _counted(n // 2, -(n // 2), at)], 0)
    return p.cast(e.mul(number, 1.0 / (n * d)), dtype=dtype or torch.get_default_dtype())


@factory(aten.fft_rfftfreq.default)
def rfftfreq(n: int, d: float = 1.0, *, dtype: Dtype = None, device: Device = None) -> Any:
    number = _counted(n // 2 + 1, 0, home(device))
    return p.cast(e.mul(number, 1.0 / (n * d)), dtype=dtype or torch.get_default_dtype())


def _window(
    length: int,
    periodic: bool,
    formula: Callable[[Tensor, int], Tensor],
    dtype: Dtype,
    device: Device,
) -> Tensor:
    """`formula` of the positions 0 .. length - 1 and of the last position of a full period."""
    kind = dtype or torch.get_default_dtype()
    if length < 2:
        return p.full([length], 1, dtype=kind, device=home(device))
    return p.cast(
        formula(_counted(length, 0, home(device)), length if periodic else length - 1), dtype=kind
    )


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


def _register_windows() -> None:
    plain: dict[str, Callable[[Tensor, int], Tensor]] = {
        "bartlett_window": _bartlett,
        "blackman_window": _cosines(0.42, -0.5, 0.08),
        "hann_window": _cosines(0.5, -0.5),
    }
    for name, formula in plain.items():
        _register_window(name, formula)


def _register_window(name: str, formula: Callable[[Tensor, int], Tensor]) -> None:
    packet = getattr(aten, name)

    def call(
        window_length: int, periodic: bool = True, *, dtype: Dtype = None, device: Device = None
    ) -> Any:
        return _window(window_length, periodic, formula, dtype, device)

    factory(packet.default, packet.periodic)(call)


_register_windows()


@factory(
    aten.hamming_window.default,
    aten.hamming_window.periodic,
    aten.hamming_window.periodic_alpha,
    aten.hamming_window.periodic_alpha_beta,
)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Dtype = None,
    device: Device = None,
) -> Any:
    return _window(window_length, periodic, _cosines(alpha, -beta), dtype, device)


@factory(aten.kaiser_window.default, aten.kaiser_window.periodic, aten.kaiser_window.beta)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Dtype = None,
    device: Device = None,
) -> Any:
    return _window(window_length, periodic, _kaiser(beta), dtype, device)
