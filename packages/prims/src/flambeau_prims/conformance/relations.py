"""Relations between operands and results where several answers are right.

In: the operands of a call, what a backend returned, what eager returned. Out: None, or what does
not hold. Invariant: a relation accepts every answer that the primitive's definition allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.registry import Case

TOLERANCE = {
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.complex32: 1e-2,
    torch.complex64: 1e-5,
    torch.complex128: 1e-12,
}
"""Allowance relative to the size of the result, by dtype."""

Relation = Callable[[Sequence[Any], Sequence[Tensor], Sequence[Tensor]], str | None]

_SLACK = 100.0
"""How much further than the allowance of a single operation a product of factors may be off."""


def _near(what: str, got: Tensor, expected: Tensor) -> str | None:
    wide = torch.complex128 if got.dtype.is_complex or expected.dtype.is_complex else torch.float64
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    off = (got.to(wide) - expected.to(wide)).abs()
    limit = _SLACK * TOLERANCE[expected.dtype] * scale
    if off.numel() and not float(off.max()) <= limit:
        return f"{what}: off by {float(off.max()):.3g}, {limit:.3g} allowed"
    return None


def _first(*messages: str | None) -> str | None:
    return next((message for message in messages if message is not None), None)


def _orthonormal(name: str, q: Tensor) -> str | None:
    eye = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    return _near(f"the columns of {name} are not orthonormal", q.mH @ q, eye)


def _qr(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    q, r = got
    return _first(
        _near("Q R is not the operand", q @ r, args[0]),
        _orthonormal("Q", q),
        _near("R is not triangular", r.tril(-1), torch.zeros_like(r)),
    )


def _svd(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    u, s, vh = got
    k = s.shape[-1]
    product = (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]
    return _first(
        _near("singular values", s, eager[1]),
        _near("U s V^H is not the operand", product, args[0]),
        _orthonormal("U", u),
        _orthonormal("V", vh.mH),
    )


def _half(a: Tensor, upper: bool) -> Tensor:
    """The Hermitian matrix of which one half is given."""
    half = a.triu(1) if upper else a.tril(-1)
    diagonal = torch.diagonal(a, dim1=-2, dim2=-1).real.to(a.dtype)
    return half + half.mH + torch.diag_embed(diagonal)


def _eigh(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    values, vectors = got
    a = _half(args[0], args[1])
    return _first(
        _near("eigenvalues", values, eager[0]),
        _near("A V is not V diag(w)", a @ vectors, vectors * values[..., None, :]),
        _orthonormal("V", vectors),
    )


def _same_set(got: Tensor, eager: Tensor) -> str | None:
    """Equal numbers in any order along the last dimension."""
    distance = (got[..., :, None] - eager[..., None, :]).abs()
    paired = distance.argmin(-1)
    ranks = torch.arange(paired.shape[-1]).expand_as(paired)
    if not torch.equal(paired.sort(-1).values, ranks):
        return "eigenvalues are not those of eager"
    return _near("eigenvalues", got, eager.gather(-1, paired))


def _eig(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    values, vectors = got
    a = args[0].to(vectors.dtype)
    return _first(
        _same_set(values, eager[0]),
        _near("A V is not V diag(w)", a @ vectors, vectors * values[..., None, :]),
        _near("norms", vectors.norm(dim=-2), torch.ones(vectors.shape[:-2] + vectors.shape[-1:])),
    )


def _eigvals(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    return _same_set(got[0], eager[0])


def _geqrf(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    a, tau = got
    k = tau.shape[-1]
    q = PRIMS["householder_product"].overload(a[..., :k], tau)
    return _near("H1 ... Hk R is not the operand", q @ a[..., :k, :].triu(), args[0])


def _lu(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    lu, pivots, info = got
    m, n = lu.shape[-2:]
    k = min(m, n)
    rows = PRIMS["pivots_to_permutation"].overload(pivots, m)
    lower = lu[..., :k].tril(-1) + torch.eye(m, k, dtype=lu.dtype)
    moved = args[0].gather(-2, rows[..., None].expand(*rows.shape, n)) if rows.numel() else args[0]
    return _first(
        _near("L U is not the permuted operand", lower @ lu[..., :k, :].triu(), moved),
        None if torch.equal(info, eager[2]) else "info differs from eager's",
    )


def _ldl(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
    a, hermitian = args
    ld, pivots, info = got
    eye = torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a).contiguous()
    inverse = PRIMS["ldl_solve"].overload(ld, pivots, eye, hermitian)
    whole = _half(a, False) if hermitian else a.tril() + a.tril(-1).mT
    return _first(
        _near("the factors do not solve systems with the operand", whole @ inverse, eye),
        None if torch.equal(info, eager[2]) else "info differs from eager's",
    )


def _at(values: Tensor, positions: Tensor, a: Tensor, dim: int) -> str | None:
    """Positions are in range and distinct, and hold the values."""
    if positions.numel() == 0:
        return None
    if int(positions.min()) < 0 or int(positions.max()) >= a.shape[dim]:
        return "a position is out of range"
    held = a.gather(dim, positions)
    same = (held == values) | ((held != held) & (values != values))
    if not bool(same.all()):
        return "the positions do not hold the values"
    ordered = positions.sort(dim).values
    size = positions.shape[dim]
    if bool((ordered.narrow(dim, 1, size - 1) == ordered.narrow(dim, 0, size - 1)).any()):
        return "a position is given twice"
    return None


def _chosen(dim_at: int) -> Relation:
    def relation(args: Sequence[Any], got: Sequence[Tensor], eager: Sequence[Tensor]) -> str | None:
        a, dim = args[0], args[dim_at]
        values, positions = (x if x.ndim == a.ndim else x.unsqueeze(dim) for x in (got[0], got[1]))
        return _at(values, positions, a, dim)

    return relation


# name: the relation, and the outputs that it alone judges
_RELATIONS: dict[str, tuple[Relation, set[int]]] = {
    "qr": (_qr, {0, 1}),
    "svd": (_svd, {0, 1, 2}),
    "eigh": (_eigh, {0, 1}),
    "eig": (_eig, {0, 1}),
    "eigvals": (_eigvals, {0}),
    "geqrf": (_geqrf, {0, 1}),
    "lu_factor": (_lu, {0, 1, 2}),
    "ldl_factor": (_ldl, {0, 1, 2}),
    "sort": (_chosen(1), set()),
    "topk": (_chosen(2), {1}),
    "kthvalue": (_chosen(2), {1}),
    **dict.fromkeys(("median", "nanmedian", "mode"), (_chosen(1), {1})),
}
RELATIONS = {name: relation for name, (relation, _) in _RELATIONS.items()}
"""Relations by primitive."""


def is_free(case: Case, position: int) -> bool:
    """Whether an output of a call is judged by the call's relation alone."""
    if case.prim.name == "sort" and position == 1:
        return not case.args[3]  # positions are determined if the sort is stable
    return case.prim.name in _RELATIONS and position in _RELATIONS[case.prim.name][1]
