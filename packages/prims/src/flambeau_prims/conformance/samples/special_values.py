"""Special values of every dtype: infinities, NaN, signed zeros, denormals.

In: a dtype and a device. Out: operands, and cases of the registry's pointwise primitives.
Invariant: operands are those that eager defines a result of; what a case may differ in from eager
is what its primitive's class says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import parameters
from flambeau_prims.ops.pointwise import FLOATS, POINTWISE

SHIFTS = (-3, -1, 0, 1, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 2**40)
DIVISIONS = frozenset({"remainder", "fmod", "floor_div", "trunc_div"})
OPEN_ZEROS = frozenset({"maximum", "minimum", "fmax", "fmin"})
"""Where operands are zeros of both signs eager gives either, by where in a vector they stand."""


@dataclass(frozen=True)
class Extreme:
    """`function` of `operands`; `zeros` says that the sign of a zero is left open."""

    name: str
    function: Callable[..., Tensor]
    operands: tuple[Tensor, ...]
    exact: bool
    zeros: bool = False


def same(a: Tensor, b: Tensor, *, zeros: bool = False) -> Tensor:
    """Whether elements are the same, all NaN being one, the sign of a zero but with `zeros` too."""
    if not a.dtype.is_floating_point:
        return a == b
    return ((a == b) & (zeros | (a.signbit() == b.signbit()))) | (a.isnan() & b.isnan())


def special(dtype: torch.dtype, count: int = 0) -> Tensor:
    """Values of a dtype at which operators are apt to differ, and `count` random ones."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    draw = torch.Generator().manual_seed(3)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        ends = [limits.min, limits.min + 1, limits.max // 2, limits.max - 1, limits.max]
        small = [n for n in (-128, -9, -3, -2, -1, 0, 1, 2, 3, 7, 8, 100, 127) if n >= limits.min]
        drawn = torch.randint(limits.min, limits.max, (count,), generator=draw, dtype=dtype)
        return torch.cat([torch.tensor(ends + small, dtype=dtype), drawn])
    return _special_floats(torch.finfo(dtype), dtype, count, draw)


def _special_floats(
    limits: torch.finfo, dtype: torch.dtype, count: int, draw: torch.Generator
) -> Tensor:
    tiny, step = limits.smallest_normal, limits.eps
    positive = [
        *(0.0, 0.1, 0.3, 0.5, 0.5 + step, 1 - step / 2, 1.0, 1 + step, 1.5, 2.0, 2.5, 3.0, 3.5),
        *(math.pi, 7.3, 10.0, 88.7, 103.0, 255.0, 1024.5, 1e10, 2.0**40, 2.0**24 + 2),
        *(tiny * step, tiny * step * 3, tiny / 2, tiny, tiny * 2, limits.max, limits.max / 2),
        *(math.inf, math.nan),
    ]
    ends = torch.tensor(positive, dtype=torch.float64).to(dtype)
    exponent = torch.empty(count, dtype=torch.float64).uniform_(-1, 1, generator=draw)
    drawn = torch.randn(count, generator=draw, dtype=torch.float64)
    spread = drawn * torch.exp2(exponent * math.log2(limits.max) * 0.9)
    near = torch.randn(count, generator=draw, dtype=torch.float64) * 4
    return torch.cat([ends, -ends, spread.to(dtype), near.to(dtype)])


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All pairs of special values, and some random ones."""
    values, drawn = special(dtype), special(dtype, 300)
    a, b = torch.cartesian_prod(values, values).T
    return torch.cat([a, drawn]), torch.cat([b, drawn.roll(7)])


def extremes(dtype: torch.dtype, device: str = "cpu") -> Iterator[Extreme]:
    """The pointwise primitives that take a dtype, on special values and all pairs of them."""
    for name, function in POINTWISE.items():
        whole_power = name == "pow" and dtype not in FLOATS  # of negative exponents: an error
        if dtype not in function.kind or whole_power:
            continue
        unary = len(parameters(PRIMS[name].overload)) == 1
        operands: tuple[Tensor, ...] = (special(dtype, 300),) if unary else _operands(name, dtype)
        if function.domain is not None:
            inside = [(o >= function.domain[0]) & (o <= function.domain[1]) for o in operands]
            operands = tuple(o[functools.reduce(torch.logical_and, inside)] for o in operands)
        exact = PRIMS[name].is_exact(dtype)
        on = tuple(operand.to(device) for operand in operands)
        yield Extreme(name, function.eager, on, exact, name in OPEN_ZEROS)


def _operands(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if name in ("shift_left", "shift_right"):
        limits = torch.iinfo(dtype)
        counts = [n for n in SHIFTS if limits.min <= n <= limits.max]
        a, b = torch.cartesian_prod(special(dtype), torch.tensor(counts, dtype=dtype)).T
        return a.contiguous(), b.contiguous()
    a, b = pairs(dtype)
    if name in DIVISIONS and dtype not in FLOATS:
        # by zero is an error; the least by -1 has eager's process killed by the processor
        defined = (b != 0) & ~((b == -1) & (a == torch.iinfo(dtype).min))
        return a[defined], b[defined]
    if name in ("gcd", "lcm"):  # the least has no absolute value: a quotient may kill the process
        held = (a != torch.iinfo(dtype).min) & (b != torch.iinfo(dtype).min)
        return (a[held], b[held]) if dtype.is_signed else (a, b)
    return a, b
