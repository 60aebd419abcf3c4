"""Primitives of data-dependent size.

In: tensors. Out: tensors of which one size is not known before they are computed.
Invariant: the rule checks the operands and then raises `SizeUnknown`: no rule predicts the shape.
A fake tensor gets a fresh unbacked symbol for it where its mode has symbols.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import torch

from flambeau_prims._op import PRIMS, PrimError, define, metas_of, require
from flambeau_prims.ops.pointwise import BOOL, INTS, REAL
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta, product

Results: TypeAlias = list[tuple[Sizes, torch.dtype]]


class SizeUnknown(PrimError):
    """The shape of the result depends on elements; only running the primitive gives it."""


def _counting(
    schema: str, eager: Callable[..., Any], counts_elements: bool = False, **notes: Any
) -> Callable[[Callable[..., Results]], Callable[..., Results]]:
    """Define the primitive of which the decorated function, given the size that depends on the
    elements and the operands, checks them and gives the shapes and dtypes of the results; its
    docstring is the definition. counts_elements: the size is at most their number."""
    name = schema[: schema.index("(")]

    def register(results: Callable[..., Results]) -> Callable[..., Results]:
        def rule(*args: Any) -> NoReturn:
            results(0, *args)
            raise SizeUnknown("the size of the result depends on the elements")

        def fake(*args: Any) -> Any:
            metas = [metas_of(arg) for arg in args]
            with contextlib.suppress(SizeUnknown):
                PRIMS[name].rule(*metas)
            most = metas[0].numel() if counts_elements else None
            limit = most if isinstance(most, int) and most > 2 else None
            size = torch.library.get_ctx().new_dynamic_size(max=limit)
            made = [args[0].new_empty(list(s), dtype=d) for s, d in results(size, *metas)]
            return tuple(made) if len(made) > 1 else made[0]

        doc = " ".join((results.__doc__ or "").split())
        tags = ("index", "data_dependent")
        more = {"doc": doc, "tags": tags, "differentiable": False, **notes}
        define(schema, rule=rule, eager=eager, fake=fake, **more)
        return results

    return register


@_counting(
    "nonzero(Tensor a) -> Tensor",
    lambda a: torch.nonzero(a).contiguous(),
    counts_elements=True,
    shape="(n, dimensions of `a`), n counted in the elements; contiguous",
    edge_cases={"nan": "not zero", "signed zero": "-0 is zero", "empty": "no rows"},
    source="Iverson, A Programming Language, 1962 (compression)",
)
def nonzero(n: Size, a: TensorMeta) -> Results:
    """The positions of the elements that are not zero, one a row, in row-major order."""
    return [((n, a.ndim), torch.int64)]


@_counting(
    "masked_select(Tensor a, Tensor mask) -> Tensor",
    torch.masked_select,
    counts_elements=True,
    shape="(n,), n true elements of `mask`",
    edge_cases={"empty": "no elements"},
    source="Iverson, A Programming Language, 1962 (compression)",
    differentiable="the gradient scattered to where the mask is true",
)
def masked_select(n: Size, a: TensorMeta, mask: TensorMeta) -> Results:
    """The elements of `a` where `mask` (bool, of one shape) is true, in row-major order."""
    require(mask.dtype == torch.bool, f"the mask is {mask.dtype}, not bool")
    require(a.shape == mask.shape, f"shapes {a.shape} and {mask.shape}")
    return [((n,), a.dtype)]


_UNIQUE_EDGES = {"nan": "each NaN is one of its own", "signed zero": "-0 and 0 are one"}
_UNIQUE_SHAPE = "(n,), the shape of `a` (int64), (n,) (int64); n distinct ones"
_KNUTH = "Knuth, The Art of Computer Programming, vol. 3, 5"


@_counting(
    "unique(Tensor a) -> (Tensor, Tensor, Tensor)",
    lambda a: torch.ops.aten._unique2.default(a, True, True, True),
    counts_elements=True,
    shape=_UNIQUE_SHAPE,
    edge_cases=_UNIQUE_EDGES,
    source=_KNUTH,
)
def unique(n: Size, a: TensorMeta) -> Results:
    """The distinct elements in ascending order, for each element of `a` its position among them,
    and how often each occurs."""
    require(a.dtype in REAL | BOOL, f"not defined on {a.dtype}")
    return [((n,), a.dtype), (a.shape, torch.int64), ((n,), torch.int64)]


@_counting(
    "unique_consecutive(Tensor a) -> (Tensor, Tensor, Tensor)",
    lambda a: torch.ops.aten.unique_consecutive.default(a, True, True),
    counts_elements=True,
    shape=_UNIQUE_SHAPE,
    edge_cases=_UNIQUE_EDGES,
    source="run-length encoding, Golomb 1966",
)
def unique_consecutive(n: Size, a: TensorMeta) -> Results:
    """The elements in row-major order with each run of equal ones made one, for each element the
    position of its run, and the runs' lengths."""
    return unique(n, a)


def _unique_dim(a: torch.Tensor, dim: int, consecutive: bool) -> Any:
    if consecutive:
        found = torch.ops.aten.unique_dim_consecutive.default(a, dim, True, True)
    else:
        found = torch.ops.aten.unique_dim.default(a, dim, True, True, True)
    return (found[0].contiguous(), *found[1:])


@_counting(
    "unique_dim(Tensor a, int dim, bool consecutive) -> (Tensor, Tensor, Tensor)",
    _unique_dim,
    shape="that of `a` with n along `dim`; (size along `dim`,); (n,)",
    edge_cases=_UNIQUE_EDGES,
    source=_KNUTH,
)
def unique_dim(n: Size, a: TensorMeta, dim: int, consecutive: bool) -> Results:
    """The distinct slices along `dim` in lexicographic order (with `consecutive`: runs of equal
    slices made one, in their order), where each slice went, and how often each occurs."""
    require(a.dtype in REAL | BOOL, f"not defined on {a.dtype}")
    require(0 <= dim < a.ndim, f"dim {dim} of a {a.ndim}-d tensor")
    before, size, behind = a.shape[:dim], a.shape[dim], a.shape[dim + 1 :]
    good = bool(product((*before, *behind)) != 0) or bool(size == 0)
    require(good, f"empty slices in {a.shape}")
    return [((*before, n, *behind), a.dtype), ((size,), torch.int64), ((n,), torch.int64)]


@_counting(
    "bincount(Tensor a, Tensor? weights, SymInt minlength) -> Tensor",
    lambda a, weights, minlength: torch.bincount(a, weights, minlength),
    shape="(max(largest element + 1, minlength),); int64, or the dtype of the weights",
    edge_cases={"out of range": "a negative element is an error", "empty": "minlength zeros"},
    source="counting sort: Knuth, The Art of Computer Programming, vol. 3, 5.2",
)
def bincount(n: Size, a: TensorMeta, weights: TensorMeta | None, minlength: Size) -> Results:
    """out[v] is how often v occurs in a 1-d integer tensor, or the sum of its weights."""
    require(a.dtype in INTS, f"not defined on {a.dtype}")
    require(a.ndim == 1 and minlength >= 0, f"a {a.ndim}-d tensor, at least {minlength}")
    if weights is None:
        return [((n,), torch.int64)]
    good = weights.shape == a.shape and weights.dtype in (torch.float32, torch.float64)
    require(good, f"weights {weights.dtype}{list(weights.shape)} for {list(a.shape)}")
    return [((n,), weights.dtype)]


@_counting(
    "repeat_interleave(Tensor repeats) -> Tensor",
    lambda repeats: torch.repeat_interleave(repeats),
    shape="(sum of the repeats,)",
    edge_cases={"out of range": "a negative number of repeats is an error", "empty": "no elements"},
    source="replication: Iverson, A Programming Language, 1962",
)
def repeat_interleave(n: Size, repeats: TensorMeta) -> Results:
    """The position i, repeats[i] times, for each i in ascending order."""
    good = repeats.ndim == 1 and repeats.dtype in (torch.int32, torch.int64)
    require(good, f"repeats are {repeats.dtype}{list(repeats.shape)}")
    return [((n,), repeats.dtype)]
