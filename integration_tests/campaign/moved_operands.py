"""Operands moved: by a rounding error, by a place, into other memory; and what kind they are.

In: a tensor. Out: another one. Invariant: shape and dtype are the same, but where an operand is
widened to hold what the dtype cannot.
"""

from __future__ import annotations

import torch

#: elements before and after an operand that are given values, to see whether eager reads them
AROUND = 4096


def is_inexact(t: torch.Tensor) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


def widened(t: torch.Tensor) -> torch.Tensor:
    if t.dtype.is_complex:
        return t.to(torch.complex128)
    return t.double() if t.dtype.is_floating_point else t


def is_whole(t: torch.Tensor) -> bool:
    """Whether double precision may not hold what it has."""
    return not is_inexact(t) and t.dtype != torch.bool


def nudged(t: torch.Tensor, nudge: int) -> torch.Tensor:
    if not is_inexact(t):
        return t
    g = torch.Generator().manual_seed(nudge)
    signs = 2 * torch.randint(0, 2, t.shape, generator=g) - 1
    step = (signs * torch.finfo(t.dtype).eps).to(t.device)
    return (widened(t) * (1 + step)).to(t.dtype)


def rolled(t: torch.Tensor, n: int) -> torch.Tensor:
    """The same, each element n places on along every dimension."""
    return t.roll([n] * t.dim(), [*range(t.dim())]) if t.dim() else t


def surrounded(t: torch.Tensor, byte: int) -> torch.Tensor:
    """Floating-point numbers with the same strides, in memory whose rest is of this byte."""
    if not is_inexact(t) or t.layout != torch.strided or not t.numel():
        return t
    t = t.detach().resolve_conj().resolve_neg()
    span = 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))
    size = (span + 2 * AROUND) * t.element_size()
    memory = torch.full((size,), byte, dtype=torch.uint8, device=t.device).view(t.dtype)
    memory[AROUND : AROUND + span] = t.as_strided((span,), (1,))
    return memory.as_strided(t.shape, t.stride(), AROUND)


def may_overflow(t: torch.Tensor) -> bool:
    """Whether products of what is finite here may be infinite."""
    if not is_inexact(t):
        return False
    return bool(t.numel()) and float(t.abs().max()) > torch.finfo(t.dtype).max ** 0.5
