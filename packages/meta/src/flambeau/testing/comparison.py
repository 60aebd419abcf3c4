"""Comparison of two runs, within what floating point allows.

In: what was observed of a run as it is, of one in double precision, of one through the compiler.
Out: nothing, or the first difference. Invariant: a compiled value may be as far from the value in
double precision as twice the value as it is (three times in half precision), and a little more;
structure, dtypes, shapes, and where there is no number, must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau._torch_compat import pytree

#: relative tolerance by dtype, for what has no value in double precision to compare with
TOLERANCE = {
    torch.float16: 1e-2,
    torch.bfloat16: 3e-2,
    torch.float32: 1e-4,
    torch.float64: 1e-9,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
}
HALF = (torch.float16, torch.bfloat16)
#: values smaller than this may be what is left of larger ones that cancel: their own size says
#: nothing of the error that rounding makes
FLOOR = 0.1


@dataclass(frozen=True)
class Observed:
    """Values by name (`output 0`, `gradient of input 1`), or the exception that ended the run."""

    values: tuple[tuple[str, Any], ...] = ()
    error: BaseException | None = None


@dataclass(frozen=True)
class Difference:
    """Where two runs differ. error, allowed: root mean squares, where numbers are compared."""

    place: str
    expected: str
    got: str
    error: float | None = None
    allowed: float | None = None

    def __str__(self) -> str:
        text = f"{self.place}: expected {self.expected}, got {self.got}"
        if self.error is not None:
            text += f" (off by {self.error:.3g}, allowed {self.allowed:.3g})"
        return text


def named(kind: str, value: Any) -> list[tuple[str, Any]]:
    """The leaves of a value, each with a name."""
    leaves = pytree.tree_leaves(value)
    return [
        (f"{kind} {place}" if len(leaves) > 1 else kind, leaf) for place, leaf in enumerate(leaves)
    ]


def difference(
    expected: Observed, got: Observed, exact: Observed | None = None
) -> Difference | None:
    """The first difference of a run from the run as it is; None where there is none."""
    if expected.error is not None or got.error is not None:
        same = type(expected.error) is type(got.error)
        return None if same else Difference("outcome", _outcome(expected), _outcome(got))
    if len(expected.values) != len(got.values):
        return Difference("results", str(len(expected.values)), str(len(got.values)))
    usable = exact is not None and exact.error is None and len(exact.values) == len(got.values)
    truths: Sequence[Any] = [None] * len(got.values)
    if usable and exact is not None:
        truths = [value for _, value in exact.values]
    for (place, want), (_, have), truth in zip(expected.values, got.values, truths):
        found = _of_values(place, want, have, truth)
        if found is not None:
            return found
    return None


def _outcome(of: Observed) -> str:
    return "a result" if of.error is None else f"{type(of.error).__name__}: {str(of.error)[:300]}"


def _of_values(place: str, want: Any, have: Any, truth: Any) -> Difference | None:
    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        same = type(want) is type(have) and (want is have or bool(want == have))
        return None if same else Difference(place, repr(want)[:100], repr(have)[:100])
    if (want.dtype, want.shape) != (have.dtype, have.shape):
        return Difference(place, _shown(want), _shown(have))
    if want.numel() == 0 or want.layout is not torch.strided:
        return None
    if want.dtype not in TOLERANCE:
        if torch.equal(want, have):
            return None
        count = int((want != have).sum())
        return Difference(place, _shown(want), f"{count} other elements")
    return _of_numbers(place, want, have, truth)


def _of_numbers(
    place: str, want: torch.Tensor, have: torch.Tensor, truth: Any
) -> Difference | None:
    wide = torch.complex128 if want.dtype.is_complex else torch.float64
    tolerance, factor = TOLERANCE[want.dtype], 3.0 if want.dtype in HALF else 2.0
    want, have = want.detach().to(wide), have.detach().to(wide)
    odd = ~torch.isfinite(want) | ~torch.isfinite(have)
    if bool(odd.any()):
        same = (want == have) | (torch.isnan(want) & torch.isnan(have))
        wrong = odd & ~same
        if bool(wrong.any()):
            at = int(wrong.flatten().nonzero()[0])
            first, second = (str(each.flatten()[at].item()) for each in (want, have))
            return Difference(f"{place} (element {at})", first, second)
    finite = ~odd
    want, have = want[finite], have[finite]
    scale = _rms(want)
    fits = isinstance(truth, torch.Tensor) and truth.shape == odd.shape
    if fits and truth.dtype in (torch.float64, torch.complex128):
        truth = truth.detach().to(wide)[finite]
        if bool(torch.isfinite(truth).all()):
            allowed = factor * _rms(want - truth) + tolerance / 10 * max(scale, FLOOR)
            error = _rms(have - truth)
            return _judged(place, want, have, error, allowed)
    return _judged(place, want, have, _rms(have - want), tolerance * max(scale, FLOOR))


def _judged(
    place: str, want: torch.Tensor, have: torch.Tensor, error: float, allowed: float
) -> Difference | None:
    if error <= allowed:
        return None
    at = int((want - have).abs().flatten().argmax())
    return Difference(
        f"{place} (element {at})",
        f"{want.flatten()[at].item():.6g}",
        f"{have.flatten()[at].item():.6g}",
        error,
        allowed,
    )


def _rms(values: torch.Tensor) -> float:
    return float(values.abs().square().mean().sqrt()) if values.numel() else 0.0


def _shown(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def first_bad(count: int, is_bad: Callable[[int], bool]) -> int | None:
    """The smallest n in 1..count with `is_bad(n)`, by halving; None where `count` steps are fine.

    No number is tried twice. Where steps interact (bad, then good again), it is one of the places
    where good turns bad.
    """
    if count < 1 or not is_bad(count):
        return None
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_bad(middle):
            bad = middle
        else:
            good = middle
    return bad
