"""Nearness of two tensors: the same, or as near as rounding allows.

In: what eager and a compiled program gave, and what double precision gives. Out: None, or what
differs in words. Invariant: a value may be as far from the one in double precision as `FACTOR`
times eager's is, and what an error of one rounding in the inputs makes of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

FACTOR = 4.0
ROUNDINGS = 8


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, with NaN for NaN and the sign of zero."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.layout != torch.strided:
        one, other = one.to_dense(), other.to_dense()
    if one.dtype.is_complex:
        return same_bits(torch.view_as_real(one), torch.view_as_real(other))
    if not one.dtype.is_floating_point:
        return torch.equal(one, other)
    return bool(_equal(one, other).all())


def same_but_zeros(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, with NaN for NaN, whatever the signs of zeros."""
    if one.shape != other.shape or not one.dtype.is_floating_point or one.layout != torch.strided:
        return False
    return one.dtype == other.dtype and torch.allclose(one, other, 0, 0, equal_nan=True)


def _equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    nan = one.isnan() & other.isnan()
    return nan | ((one == other) & (one.signbit() == other.signbit()))


def shown_difference(want: torch.Tensor, got: torch.Tensor) -> str:
    """How many elements differ, and the first."""
    if want.dtype.is_complex:
        want, got = torch.view_as_real(want.contiguous()), torch.view_as_real(got.contiguous())
    apart = ~_equal(want, got) if want.dtype.is_floating_point else want != got
    at = int(apart.flatten().nonzero()[0]) if apart.any() else 0
    first, second = (t.flatten()[at].item() for t in (want, got))
    kind = str(want.dtype).removeprefix("torch.")
    text = f"{int(apart.sum())}/{want.numel()} differ, first at {at}: {first!r}"
    return f"{text}, compiled {second!r} ({kind})"


def far(
    want: torch.Tensor, got: torch.Tensor, reference: torch.Tensor | None,
    others: Sequence[torch.Tensor], mixing: bool = True, off: float = 0.0,
    unsure: Sequence[torch.Tensor] = (), overflows: bool = False,
    more: Sequence[torch.Tensor] = (),
) -> str | None:  # fmt: skip
    """None if what was computed is as near to the reference as rounding allows, and what the
    reference itself is `off`, beside 1 or the value. others: the same of operands moved by a
    rounding error; unsure: the reference of whole operands moved by one of double precision.
    overflows: whether parts of a sum may leave the range, whose order decides where and how. more:
    what each element may be off by besides. A complex number is off beside its modulus, either part
    of it: so are products and quotients (Higham, Accuracy and Stability of Numerical Algorithms,
    lemma 3.5)."""
    if want.dtype.is_complex:
        parts = [torch.view_as_real(t.resolve_conj().contiguous()) for t in (want, got)]
        wide = (
            None
            if reference is None or not reference.dtype.is_complex
            else (torch.view_as_real(reference.resolve_conj().contiguous()))
        )
        nudged = [
            torch.view_as_real(o.resolve_conj().contiguous())
            for o in others
            if o.shape == want.shape
        ]
        moved = [
            torch.view_as_real(u.resolve_conj().contiguous()) for u in unsure if u.is_complex()
        ]
        size = (want if wide is None or reference is None else reference).to(torch.complex128).abs()
        size = size.nan_to_num(0.0, 0.0, 0.0) * ROUNDINGS * torch.finfo(want.dtype).eps
        both = size.unsqueeze(-1).expand(parts[0].shape)
        return far(parts[0], parts[1], wide, nudged, mixing, off, moved, overflows, [both])
    info = torch.finfo(want.dtype)
    w, g = want.double(), got.double()
    others = [o.double() for o in others if o.shape == want.shape]
    known = (
        reference is not None and reference.shape == want.shape and reference.is_floating_point()
    )
    ref = reference.double() if known and reference is not None else w
    room = torch.zeros_like(w)
    loose = torch.zeros_like(w, dtype=torch.bool)
    for other in others:
        apart = (other - w).abs()
        loose |= ~torch.isfinite(apart) & ~((other == w) | (other.isnan() & w.isnan()))
        room = torch.maximum(room, apart.nan_to_num(0.0, 0.0, 0.0))
    error = (w - ref).abs().nan_to_num(0.0, 0.0, 0.0)
    usual = error[torch.isfinite(w) & torch.isfinite(ref)]
    scale = ref.abs().nan_to_num(0.0, 0.0, 0.0)
    tiny = float(info.smallest_normal) * info.eps * 4
    if mixing:  # any element may carry the error of the greatest
        greatest = [float(t.max()) if t.numel() else 0.0 for t in (usual, room, scale)]
        room = FACTOR * (room + max(greatest[:2])) + ROUNDINGS * info.eps * greatest[2]
    else:  # what the argument's own rounding makes, where that is not all of the result
        room = torch.minimum(FACTOR * room, 16 * info.eps * scale.clamp(min=1.0))
    allowed = FACTOR * error + room + ROUNDINGS * info.eps * scale + tiny
    # what is no number where others are (0 * log(0) of a branch that is not taken) allows nothing
    rooms = (each.nan_to_num(0.0, float("inf"), 0.0) for each in more)
    allowed = sum(rooms, allowed + off * scale.clamp(min=1.0))
    for other in unsure if known else ():  # what the reference does not know either
        if other.shape == ref.shape and other.is_floating_point():
            apart = (other.double() - ref).abs().nan_to_num(0.0, 0.0, 0.0)
            allowed = torch.maximum(allowed, FACTOR * apart)
    near = (g - ref).abs() <= allowed
    same = (g == ref) | (g.isnan() & ref.isnan()) | (g == w) | (g.isnan() & w.isnan())
    limit = (scale >= 0.99 * info.max) & (g.abs() >= 0.98 * info.max)
    if reference is not None and known:  # eager left the range on the way: so may the other
        left = torch.isfinite(ref) & ~torch.isfinite(w)
        loose |= left if mixing else left & ~torch.isfinite(g)
    if overflows:
        loose |= ~torch.isfinite(w)
    bad = ~(near | same | limit | loose)
    if not bad.any():
        return None
    at = int(bad.flatten().nonzero()[0])
    values = [t.flatten()[at].item() for t in (w, g, ref, allowed)]
    kind = str(want.dtype).removeprefix("torch.")
    text = "{:.9g}, compiled {:.9g}, in double {:.9g}, allowed {:.3g}".format(*values)
    return f"{int(bad.sum())}/{want.numel()} differ, first at {at}: {text} ({kind})"
