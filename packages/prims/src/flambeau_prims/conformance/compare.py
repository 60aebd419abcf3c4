"""Comparison of an output with its reference.

In: what a backend returned, what eager returned, and the same computed in float64. Out: None, or
what is wrong in a few words.
Invariant: shape, dtype and strides are always compared with the graph's promise; values by a judge:

- `exact`: bit for bit, but for the payload of a NaN (moves, choices, integers, tests);
- `close`: at most twice eager's distance from the float64 result (three times in half precision),
  plus a small allowance, as a whole and by element; NaN and infinities where eager has them;
- `shape`: nothing more (a seed, the state that a library call hands to its backward);
- `loose`, `rough`: `close` with fewer digits, for functions of which libraries give fewer;
  `branch`: up to multiples of 2 pi i;
- `equal`: as `exact`, but a zero of either sign (extremes, which may take either);
- where several answers are right (eigenvectors, an order) `relations` judges all results together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flambeau_prims._op import is_same_layout
from flambeau_prims.conformance.relations import TOLERANCE, is_free
from flambeau_prims.conformance.samples.registry import Case
from flambeau_prims.shape_rules import TensorMeta

_ELEMENT = 8.0
"""A single element may be off by this much more than the allowance for all."""

_EXACT_TAGS = frozenset({"shape", "view", "creation", "index", "sort"})
# Index primitives that also add, in an order of their own.
_ADDING = frozenset(
    {
        *("scatter_add", "scatter_prod", "index_put", "bincount", "cumsum", "cumprod"),
        *("embedding_bag", "embedding_bag_backward", "embedding_bag_weights_backward"),
    }
)
_EXACT = frozenset(
    {
        *("abs", "neg", "sign", "ceil", "floor", "round", "trunc", "copysign", "nextafter"),
        *("where", "cast", "sort", "topk", "real", "imag", "conj", "view_as_real", "frexp"),
        *("view_as_complex", "complex", "philox_uniform", "max_pool2d_with_indices"),
        *("device_put", "clone", "copy_"),
    }
)
# Libraries differ in the last digits of these; two derivatives have three digits in eager.
_LOOSE_TAGS = frozenset({"special", "linalg"})
_LOOSE = frozenset({"lgamma", "digamma", "erfinv", "logcumsumexp"})
_ROUGH = frozenset({"gamma_grad", "dirichlet_grad"})
_EQUAL = frozenset(
    {
        *("maximum", "minimum", "fmax", "fmin", "amax", "amin", "cummax", "cummin"),
        *("scatter_amax", "scatter_amin"),
    }
)
# What a library call hands to its backward is its own affair, but for its shape.
_SHAPE_ONLY = {
    *(("seed", 0), ("attention", 1), ("ctc_loss", 1)),
    *(("embedding_bag", 1), ("embedding_bag", 2), ("embedding_bag", 3)),
}


@dataclass(frozen=True)
class JudgedOutput:
    """One output of a program: the backend's, eager's, the reference's and the promise."""

    got: Tensor
    eager: Tensor
    reference: Tensor | None
    promise: TensorMeta


Judge = Callable[[JudgedOutput], str | None]


def judge_of(case: Case, position: int) -> str:
    """The name of the judge of an output of a sample call."""
    prim = case.prim
    if (prim.name, position) in _SHAPE_ONLY or is_free(case, position):
        return "shape"
    if prim.name == "topk" and not case.args[4]:
        return "any order"
    if prim.name in _EQUAL:
        return "equal"
    if prim.name in _ROUGH:
        return "rough"
    if prim.tags & _LOOSE_TAGS or prim.name in _LOOSE:
        return "branch" if prim.name == "logcumsumexp" else "loose"
    if prim.name in ("abs", "sign") and any(x.dtype.is_complex for x in case.tensors):
        return "close"
    moves = prim.tags & _EXACT_TAGS and prim.name not in _ADDING | {"philox_normal"}
    return "exact" if moves or prim.name in _EXACT else "close"


def verdict(judge: str, output: JudgedOutput, *, strides: bool = True) -> str | None:
    """What is wrong with an output; None if it is right."""
    got, promise = output.got, output.promise
    if not isinstance(got, Tensor):
        return f"is a {type(got).__name__}, not a tensor"
    if tuple(got.shape) != promise.shape:
        return f"has shape {tuple(got.shape)}, not {promise.shape}"
    if got.dtype != promise.dtype:
        return f"has dtype {_short(got.dtype)}, not {_short(promise.dtype)}"
    if got.device != promise.device:
        return f"is on {got.device}, not {promise.device}"
    if strides and not is_same_layout(got, promise):
        return f"has strides {tuple(got.stride())}, not {promise.stride}"
    if judge == "shape" or got.numel() == 0:
        return None
    if judge in ("close", "loose") and not (got.dtype.is_floating_point or got.dtype.is_complex):
        judge = "exact"
    reference = None if output.reference is None else output.reference.cpu()
    return JUDGES[judge](JudgedOutput(got.cpu(), output.eager.cpu(), reference, promise))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _equal(output: JudgedOutput) -> str | None:
    """NaN where eager has one, else equal: -0 is 0."""
    got, eager = output.got, output.eager
    same = (got == eager) | ((got != got) & (eager != eager))
    return None if bool(same.all()) else f"{_first(~same, got, eager)} and must be equal"


def _exact(output: JudgedOutput) -> str | None:
    got, eager = _in_parts(output.got), _in_parts(output.eager)
    same = got == eager
    if got.dtype.is_floating_point:
        same = same & (torch.signbit(got) == torch.signbit(eager))
        same = same | (torch.isnan(got) & torch.isnan(eager))
    if bool(same.all()):
        return None
    return f"{_first(~same, got, eager)} and must be equal"


def _first(bad: Tensor, got: Tensor, expected: Tensor) -> str:
    """The first bad element, in words."""
    at = tuple(int(i) for i in bad.nonzero()[0])
    count = int(bad.sum())
    return f"{count} of {bad.numel()} differ: at {at} {got[at].item()}, eager {expected[at].item()}"


def _in_parts(x: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones."""
    return torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x


def _close(output: JudgedOutput, slack: float = 1.0) -> str | None:
    got, eager = _in_parts(output.got), _in_parts(output.eager)
    reference = None if output.reference is None else _in_parts(output.reference)
    wide = torch.float64
    g, e = got.to(wide), eager.to(wide)
    r = e if reference is None else reference.to(wide)
    odd = ~(torch.isfinite(e) & torch.isfinite(g))
    # where eager is not finite though float64 is, the backend may have either
    same = torch.where(torch.isnan(e), torch.isnan(g), g == e)
    same = same | torch.isclose(g, r, rtol=1e-3, equal_nan=True)
    if not bool((same | ~odd).all()):
        return f"{_first(odd & ~same, got, eager)} (not finite)"
    # where the wide result overflows the dtype, eager is the measure
    r = torch.where(torch.isfinite(r), r, e)
    keep = ~odd
    g, e, r = g[keep], e[keep], r[keep]
    if g.numel() == 0:
        return None
    return _distance(g, e, r, output.promise.dtype, slack)


def _distance(g: Tensor, e: Tensor, r: Tensor, dtype: torch.dtype, slack: float) -> str | None:
    tolerance = slack * TOLERANCE[dtype]
    factor = 3.0 if dtype.itemsize <= 2 else 2.0
    ours, theirs = (g - r).abs(), (e - r).abs()
    scale = float(r.abs().square().mean().sqrt())
    limit = factor * float(theirs.square().mean().sqrt()) + tolerance / 10 * max(scale, 1e-6)
    off = float(ours.square().mean().sqrt())
    if not off <= limit:
        return f"rms error {off:.3g} against float64, {limit:.3g} allowed (rms value {scale:.3g})"
    allowed = factor * float(theirs.max()) + _ELEMENT * tolerance * (r.abs() + 0.1 * scale + 1e-6)
    bad = ~(ours <= allowed)
    if bool(bad.any()):
        return f"{_first(bad, g, e)}, float64 says {r[tuple(bad.nonzero()[0])].item()}"
    return None


def _any_order(output: JudgedOutput) -> str | None:
    """The same elements; that they lie in the right rows is what `topk`'s relation says."""
    got, eager = (x.reshape(-1).sort().values for x in (output.got, output.eager))
    return None if torch.equal(got, eager) else "does not hold the elements of eager's"


def _loose(output: JudgedOutput) -> str | None:
    """As `close`, for functions of which libraries give fewer digits than the dtype has."""
    return _close(output, slack=1000.0 if output.promise.dtype.itemsize >= 8 else 10.0)


def _rough(output: JudgedOutput) -> str | None:
    """As `close` to three digits: eager itself has no more of them, in any dtype."""
    return _close(output, slack=1e-2 / TOLERANCE[output.promise.dtype])


def _branch(output: JudgedOutput) -> str | None:
    """Complex logarithms: equal up to multiples of 2 pi i."""
    if not output.got.dtype.is_complex:
        return _close(output)
    reference = None if output.reference is None else output.reference.exp()
    return _loose(JudgedOutput(output.got.exp(), output.eager.exp(), reference, output.promise))


JUDGES: dict[str, Judge] = {
    "exact": _exact,
    "equal": _equal,
    "close": _close,
    "loose": _loose,
    "rough": _rough,
    "branch": _branch,
    "any order": _any_order,
}
"""Judges by name."""
