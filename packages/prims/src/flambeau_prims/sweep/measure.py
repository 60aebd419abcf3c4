"""Error of a result relative to eager's own, against a reference.

In: results of ours, of eager, and of eager in double precision. Out: a ratio, or what is wrong.
Invariant: a result is right if its error against the reference is at most twice eager's, and a
little for the noise of rounding; without a reference it is compared with eager itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from flambeau_prims.graph_recorder import flatten

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
"""The dtypes of the sweep."""

HALVES = (torch.float16, torch.bfloat16, torch.complex32)

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""The dtype of the reference."""

# How much of the reference's size counts as noise, and as equal where there is no reference.
_NOISE = {
    torch.float16: 3e-4,
    torch.bfloat16: 1e-3,
    torch.complex32: 3e-4,
    torch.float32: 1e-6,
    torch.complex64: 1e-6,
}
_CLOSE = {
    torch.complex32: 1e-2,
    torch.float16: 1e-2,
    torch.bfloat16: 3e-2,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.float64: 1e-10,
    torch.complex128: 1e-10,
}


@dataclass(frozen=True)
class Measured:
    """`wrong` says what is wrong with structure or metadata, `differs` with values; None if
    nothing is. `ratio` is our error over eager's."""

    wrong: str | None = None
    differs: str | None = None
    ratio: float = 0.0
    layout: str | None = None


def compare(ours: Any, eager: Any, reference: Any | None) -> Measured:
    """Structure, metadata and values of our results against eager's."""
    a, b = flatten(ours), flatten(eager)
    if len(a) != len(b):
        return Measured(f"{len(a)} results instead of {len(b)}")
    r = flatten(reference) if reference is not None else []
    if len(r) != len(b):
        r = [None] * len(b)
    worst, layout = 0.0, None
    for position, (x, y, z) in enumerate(zip(a, b, r, strict=True)):
        if not isinstance(y, torch.Tensor):
            if type(x) is not type(y) or not (x == y or (x != x and y != y)):
                return Measured(f"result {position} is {x!r}, eager {y!r}")
            continue
        one = compare_tensors(x, y, z)
        if one.wrong:
            return Measured(f"result {position}: {one.wrong}")
        if one.differs:
            return Measured(differs=f"result {position}: {one.differs}", ratio=one.ratio)
        worst = max(worst, one.ratio)
        layout = layout or one.layout
    return Measured(ratio=worst, layout=layout)


def compare_tensors(x: Any, y: torch.Tensor, reference: Any) -> Measured:
    """One result against eager's; `reference` is eager's in a wider dtype, or None."""
    if not isinstance(x, torch.Tensor):
        return Measured(f"a {type(x).__name__} instead of a tensor")
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return Measured(f"{x.dtype}{list(x.shape)} instead of {y.dtype}{list(y.shape)}")
    if x.layout != torch.strided or x.numel() == 0:
        return Measured()
    layout = None
    pairs = zip(x.shape, x.stride(), y.stride(), strict=True)
    if any(size != 1 and a != b for size, a, b in pairs):
        layout = f"strides {x.stride()} instead of {y.stride()} for {list(x.shape)}"
    x, y = x.detach().resolve_conj().resolve_neg(), y.detach().resolve_conj().resolve_neg()
    if not (y.dtype.is_floating_point or y.dtype.is_complex):
        if torch.equal(x, y):
            return Measured(layout=layout)
        return Measured(
            differs=f"{int((x != y).sum())} of {x.numel()} elements differ", layout=layout
        )
    special = _special_values(x, y)
    if special:
        return Measured(differs=special)
    return _errors(x, y, reference, layout)


def _special_values(x: torch.Tensor, y: torch.Tensor) -> str | None:
    for test in (torch.isnan, torch.isinf):
        if not torch.equal(test(x), test(y)):
            where = test(x) != test(y)
            return f"{test.__name__}: {x[where][:3].tolist()} instead of {y[where][:3].tolist()}"
    if not y.dtype.is_complex and not torch.equal(x[torch.isinf(x)], y[torch.isinf(y)]):
        return "infinities of the other sign"
    return None


def _errors(x: torch.Tensor, y: torch.Tensor, reference: Any, layout: str | None) -> Measured:
    dtype = y.dtype
    wide = WIDE.get(dtype, dtype)
    usable = (
        isinstance(reference, torch.Tensor)
        and (reference.shape, reference.dtype) == (y.shape, wide)
        and wide != dtype
    )
    good = torch.isfinite(y) & (torch.isfinite(reference) if usable else True)
    if not good.any():
        return Measured(layout=layout)
    x, y = x[good].to(wide), y[good].to(wide)
    target = reference.detach().resolve_conj().resolve_neg()[good] if usable else y
    size, ours, theirs = _rms(target), _rms(x - target), _rms(y - target)
    if not usable:
        if ours <= _CLOSE[dtype] * max(size, 1e-3):
            return Measured(layout=layout)
        return Measured(differs=f"differs from eager by {ours:.2e} of {size:.2e} (rms)")
    # Below the size of one rounding, an error says nothing about a method.
    floor = torch.finfo(dtype).eps / 2 * max(size, 1e-3)
    ratio = ours / max(theirs, floor)
    factor = 3 if dtype in HALVES else 2
    if ours <= factor * theirs + _NOISE[dtype] * max(size, 1e-3):
        return Measured(ratio=ratio, layout=layout)
    return Measured(
        differs=f"error {ours:.2e}, eager's {theirs:.2e}, of {size:.2e} (rms)", ratio=ratio
    )


def _rms(x: torch.Tensor) -> float:
    return float((x.abs().double() ** 2).mean().sqrt())
