"""Operands moved by a rounding error, by a place, into other memory; a statement run on them.

In: a tensor; a statement. Out: another tensor; a result. Invariant: shape and dtype are the same,
but where an operand is widened to hold what the dtype cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def run_again(
    statement: str, name: str, where: str, before: dict[str, Any], path: str,
    change: Callable[[torch.Tensor], torch.Tensor], seed: int, promoted: torch.dtype | None = None,
) -> torch.Tensor | None:  # fmt: skip
    """The result of a statement on its operands changed so; `promoted`: what whole numbers are
    promoted to, where they become floating-point."""
    usual = torch.get_default_dtype()
    space = {k: _mapped(v, change) for k, v in before.items() if k[:1] in "xv" and k[1:].isdigit()}
    torch.default_generator.manual_seed(seed)
    torch.set_default_dtype(promoted or usual)
    try:
        whole = {**before, **space}
        exec(statement, whole)
    except Exception:
        return None
    finally:
        torch.set_default_dtype(usual)
    return tensors_by_place(whole[name], path).get(where)


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        made = [_mapped(v, change) for v in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def tensors_by_place(value: Any, path: str) -> dict[str, torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (
            {path: value.detach().resolve_conj().resolve_neg()}
            if value.layout == torch.strided
            else {}
        )
    if isinstance(value, list | tuple):
        parts = (tensors_by_place(v, f"{path}[{n}]") for n, v in enumerate(value))
        return {place: t for part in parts for place, t in part.items()}
    return {}
