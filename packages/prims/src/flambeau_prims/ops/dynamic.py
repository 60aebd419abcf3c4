"""Primitives of data-dependent size.

In: tensors. Out: tensors of which one size is not known before they are computed.
Invariant: the rule checks the operands and then raises `SizeUnknown`: no rule predicts the shape.
A fake tensor gets a fresh unbacked symbol for it where its mode has symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from flambeau_prims._op import PrimError, Rule, define, require
from flambeau_prims.layout import TensorMeta, product
from flambeau_prims.ops.pointwise import ANY, BOOL, INTS, REAL, Kind


class SizeUnknown(PrimError):
    """The shape of the result depends on elements; only running the primitive gives it."""


def _unknown(name: str) -> NoReturn:
    raise SizeUnknown(f"{name}: the size of the result depends on the elements")


def _checking(name: str, check: Callable[..., None]) -> Rule:
    def rule(*args: Any, **kwargs: Any) -> NoReturn:
        check(*args, **kwargs)
        _unknown(name)

    return rule


def _faking(check: Callable[..., None], shaped: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for fake tensors: the check, then empty results around one fresh size."""

    def fake(*args: Any, **kwargs: Any) -> Any:
        def meta(item: Any) -> Any:
            return TensorMeta.of(item) if isinstance(item, torch.Tensor) else item

        check(*map(meta, args), **{k: meta(v) for k, v in kwargs.items()})
        size = torch.library.get_ctx().new_dynamic_size()
        return shaped(size, *args, **kwargs)

    return fake


def _new(a: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    return a.new_empty(list(shape), dtype=dtype or a.dtype)


def _register(
    schema: str,
    check: Callable[..., None],
    eager: Callable[..., Any],
    shaped: Callable[..., Any],
    **notes: Any,
) -> None:
    name = schema[: schema.index("(")]
    define(
        schema,
        rule=_checking(name, check),
        eager=eager,
        fake=_faking(check, shaped),
        tags=("index", "data_dependent"),
        differentiable=notes.pop("differentiable", False),
        **notes,
    )


def _kinds(name: str, a: TensorMeta, kind: Kind) -> None:
    require(a.dtype in kind, f"{name}: not defined on {a.dtype}")


def _check_nonzero(a: TensorMeta) -> None:
    _kinds("nonzero", a, ANY)


_register(
    "nonzero(Tensor a) -> Tensor",
    _check_nonzero,
    lambda a: torch.nonzero(a).contiguous(),
    lambda n, a: _new(a, (n, a.ndim), torch.int64),
    doc="The positions of the elements that are not zero, one a row, in row-major order.",
    shape="(n, dimensions of `a`), n counted in the elements; contiguous",
    edge_cases={"nan": "not zero", "signed zero": "-0 is zero", "empty": "no rows"},
    source="Iverson, A Programming Language, 1962 (compression)",
)


def _check_masked_select(a: TensorMeta, mask: TensorMeta) -> None:
    require(mask.dtype == torch.bool, f"masked_select: the mask is {mask.dtype}, not bool")
    require(a.shape == mask.shape, f"masked_select: shapes {a.shape} and {mask.shape}")


_register(
    "masked_select(Tensor a, Tensor mask) -> Tensor",
    _check_masked_select,
    torch.masked_select,
    lambda n, a, mask: _new(a, (n,)),
    doc="The elements of `a` where `mask` (bool, of one shape) is true, in row-major order.",
    shape="(n,), n true elements of `mask`",
    edge_cases={"empty": "no elements"},
    source="Iverson, A Programming Language, 1962 (compression)",
    differentiable="the gradient scattered to where the mask is true",
)


def _check_unique(a: TensorMeta) -> None:
    _kinds("unique", a, REAL | BOOL)


def _unique(a: torch.Tensor) -> Any:
    return torch.ops.aten._unique2.default(a, True, True, True)


def _counted(n: int, a: torch.Tensor) -> Any:
    return _new(a, (n,)), _new(a, a.shape, torch.int64), _new(a, (n,), torch.int64)


_UNIQUE_EDGES = {"nan": "each NaN is one of its own", "signed zero": "-0 and 0 are one"}
_UNIQUE_SHAPE = "(n,), the shape of `a` (int64), (n,) (int64); n distinct ones"

_register(
    "unique(Tensor a) -> (Tensor, Tensor, Tensor)",
    _check_unique,
    _unique,
    _counted,
    doc="The distinct elements in ascending order, for each element of `a` its position among"
    " them, and how often each occurs.",
    shape=_UNIQUE_SHAPE,
    edge_cases=_UNIQUE_EDGES,
    source="Knuth, The Art of Computer Programming, vol. 3, 5",
)


def _check_consecutive(a: TensorMeta) -> None:
    _kinds("unique_consecutive", a, REAL | BOOL)


def _consecutive(a: torch.Tensor) -> Any:
    return torch.ops.aten.unique_consecutive.default(a, True, True)


_register(
    "unique_consecutive(Tensor a) -> (Tensor, Tensor, Tensor)",
    _check_consecutive,
    _consecutive,
    _counted,
    doc="The elements in row-major order with each run of equal ones made one, for each element"
    " the position of its run, and the runs' lengths.",
    shape=_UNIQUE_SHAPE,
    edge_cases=_UNIQUE_EDGES,
    source="run-length encoding, Golomb 1966",
)


def _check_unique_dim(a: TensorMeta, dim: int, consecutive: bool) -> None:
    del consecutive
    _kinds("unique_dim", a, REAL | BOOL)
    require(0 <= dim < a.ndim, f"unique_dim: dim {dim} of a {a.ndim}-d tensor")
    rest = product([n for d, n in enumerate(a.shape) if d != dim])
    require(bool(rest != 0) or bool(a.shape[dim] == 0), f"unique_dim: empty slices in {a.shape}")


def _unique_dim(a: torch.Tensor, dim: int, consecutive: bool) -> Any:
    if consecutive:
        found = torch.ops.aten.unique_dim_consecutive.default(a, dim, True, True)
    else:
        found = torch.ops.aten.unique_dim.default(a, dim, True, True, True)
    return (found[0].contiguous(), *found[1:])


def _unique_dim_shaped(n: int, a: torch.Tensor, dim: int, consecutive: bool) -> Any:
    del consecutive
    shape = (*a.shape[:dim], n, *a.shape[dim + 1 :])
    return _new(a, shape), _new(a, (a.shape[dim],), torch.int64), _new(a, (n,), torch.int64)


_register(
    "unique_dim(Tensor a, int dim, bool consecutive) -> (Tensor, Tensor, Tensor)",
    _check_unique_dim,
    _unique_dim,
    _unique_dim_shaped,
    doc="The distinct slices along `dim` in lexicographic order (with `consecutive`: runs of equal"
    " slices made one, in their order), where each slice went, and how often each occurs.",
    shape="that of `a` with n along `dim`; (size along `dim`,); (n,)",
    edge_cases=_UNIQUE_EDGES,
    source="Knuth, The Art of Computer Programming, vol. 3, 5",
)


def _check_bincount(a: TensorMeta, weights: TensorMeta | None, minlength: int) -> None:
    _kinds("bincount", a, INTS)
    require(a.ndim == 1 and minlength >= 0, f"bincount: a {a.ndim}-d tensor, at least {minlength}")
    if weights is not None:
        require(
            weights.shape == a.shape and weights.dtype in (torch.float32, torch.float64),
            f"bincount: weights {weights.dtype}{list(weights.shape)} for {list(a.shape)}",
        )


def _bincount_shaped(n: int, a: torch.Tensor, weights: torch.Tensor | None, minlength: int) -> Any:
    del minlength
    return _new(a, (n,), torch.int64 if weights is None else weights.dtype)


_register(
    "bincount(Tensor a, Tensor? weights, SymInt minlength) -> Tensor",
    _check_bincount,
    lambda a, weights, minlength: torch.bincount(a, weights, minlength),
    _bincount_shaped,
    doc="out[v] is how often v occurs in a 1-d integer tensor, or the sum of its weights.",
    shape="(max(largest element + 1, minlength),); int64, or the dtype of the weights",
    edge_cases={"out of range": "a negative element is an error", "empty": "minlength zeros"},
    source="counting sort: Knuth, The Art of Computer Programming, vol. 3, 5.2",
)


def _check_repeats(repeats: TensorMeta) -> None:
    good = repeats.ndim == 1 and repeats.dtype in (torch.int32, torch.int64)
    require(good, f"repeat_interleave: repeats are {repeats.dtype}{list(repeats.shape)}")


_register(
    "repeat_interleave(Tensor repeats) -> Tensor",
    _check_repeats,
    lambda repeats: torch.repeat_interleave(repeats),
    lambda n, repeats: _new(repeats, (n,)),
    doc="The position i, repeats[i] times, for each i in ascending order.",
    shape="(sum of the repeats,)",
    edge_cases={"out of range": "a negative number of repeats is an error", "empty": "no elements"},
    source="replication: Iverson, A Programming Language, 1962",
)
