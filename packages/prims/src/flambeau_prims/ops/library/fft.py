"""Leaves of Fourier transforms.

In: a tensor and the dimensions to transform, in the order of the transforms. Out: a dense tensor,
the transformed dimensions innermost, as libraries work on them.
Invariant: a library scales as it transforms, by ATen's number for a normalization: 0 not at all, 1
and 2 by the root of the number n of transformed elements, and by n. What would overflow first, and
be divided after, does not where the library has it so.

With w = exp(-2 pi i / n): forward X[k] = sum_j x[j] w^(jk), backward x[j] = sum_k X[k] w^(-jk).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import PRIMS, MetaResult, empty_as, require, tensor_metas
from flambeau_prims.ops.complex import COMPLEX_OF, REAL_OF
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.shape_rules import Shape, Size, Sizes, TensorMeta, ordered_strides

aten = torch.ops.aten
_WIDE = frozenset({torch.complex64, torch.complex128})
_REAL = frozenset({torch.float32, torch.float64})
_COOLEY = "Cooley and Tukey, An Algorithm for the Machine Calculation of Complex Fourier Series"
_EDGES = {"nan": "spreads over the whole transform", "empty": "no elements to transform: an error"}


def _check(a: TensorMeta, dims: Sequence[int]) -> None:
    good = len(dims) > 0 and len(set(dims)) == len(dims) and all(0 <= d < a.ndim for d in dims)
    require(good, f"dims {list(dims)} of a {a.ndim}-d tensor")
    require(all(bool(a.shape[d] >= 1) for d in dims), f"nothing to transform in {a.shape}")


def _strides(a: TensorMeta, dims: Sequence[int], shape: Sizes) -> Shape:
    """Dense strides: the rest of the dimensions in the order of their strides, then `dims`.

    Of equal strides those are first that are so when each transformed dimension has changed places
    with the last that is not: what torch sorts is partitioned so.
    """
    parted, end = list(range(a.ndim)), a.ndim
    for place in range(a.ndim):
        if parted[place] in dims:
            end = next((k for k in range(end - 1, place, -1) if parted[k] not in dims), place)
            parted[place], parted[end] = parted[end], parted[place]
        if place >= end:
            break
    rest = sorted((d for d in parted if d not in dims), key=lambda d: -a.stride[d])
    return ordered_strides(shape, [*rest, *dims])


def _by_stride(a: TensorMeta, dims: Sequence[int]) -> list[int]:
    return sorted(dims, key=lambda d: -a.stride[d])


_CUFFT_DIMS = 3
"""So many dimensions at most are transformed by one plan of a GPU's library."""


def _in_one_plan(dims: Sequence[int]) -> bool:
    """Whether torch has a GPU transform real numbers along `dims` at once."""
    return len(dims) <= _CUFFT_DIMS and tuple(dims[:2]) != (0, 1)


def _planned(a: TensorMeta, dims: Sequence[int], shape: Sizes) -> TensorMeta:
    """Complex numbers after plans along `dims`, the innermost of them first."""
    rest = list(dims)
    while rest:
        rest = _by_stride(a, rest)
        a = a.like(shape, _strides(a, rest[-_CUFFT_DIMS:], shape))
        del rest[-_CUFFT_DIMS:]
    return a


_LAYOUT = "; the transformed dimensions innermost, in the order of the operand's strides"


def _flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    a, dims = args[0], args[1]
    length = math.prod(int(a.shape[d]) for d in dims)
    total: Size = 5 * tensor_metas([result])[0].numel() * max(length - 1, 1).bit_length()
    return total


def _in_library(op: Any, name: str) -> Callable[..., torch.Tensor]:
    """The operator; an empty batch, of which the library has no plan, by rule."""

    def call(
        a: torch.Tensor, dims: Sequence[int], last: Any, normalization: int = 0
    ) -> torch.Tensor:
        if a.numel():
            return op.default(a, list(dims), normalization, last)  # type: ignore[no-any-return]
        return empty_as(PRIMS[name].rule(TensorMeta.of(a), dims, last), a.device)

    return call


_leaf = partial(
    leaf,
    family="fft",
    tags=("fft", "library"),
    reason="an algorithm of a library: pocketfft, MKL's or cuFFT",
    edge_cases=_EDGES,
    source=_COOLEY,
    flops=_flops,
)


@_leaf(
    "fft_c2c(Tensor a, int[] dims, bool forward, int normalization=0) -> Tensor",
    _in_library(aten._fft_c2c, "fft_c2c"),
    shape=f"that of the operand{_LAYOUT}",
    dtypes=_WIDE,
)
def fft_c2c(a: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    """The transform of complex numbers along `dims`, forward or backward."""
    _check(a, dims)
    if a.device.type == "cuda":
        return _planned(a, dims, a.shape)
    return a.like(a.shape, _strides(a, _by_stride(a, dims), a.shape))


@_leaf(
    "fft_r2c(Tensor a, int[] dims, bool onesided, int normalization=0) -> Tensor",
    _in_library(aten._fft_r2c, "fft_r2c"),
    shape="the operand's; with `onesided` n // 2 + 1 in the last of `dims`; complex" + _LAYOUT,
    dtypes=_REAL,
)
def fft_r2c(a: TensorMeta, dims: Sequence[int], onesided: bool) -> TensorMeta:
    """The forward transform of real numbers; `onesided` leaves out the half of the last of `dims`
    that is the conjugate of the other."""
    _check(a, dims)
    shape = list(a.shape)
    if onesided:
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    order = [*_by_stride(a, dims[:-1]), dims[-1]]
    if a.device.type == "cuda" and not _in_one_plan(dims):
        first = a.like(shape, _strides(a, dims[-1:], shape), COMPLEX_OF[a.dtype])
        return _planned(first, dims[:-1], shape)
    return a.like(shape, _strides(a, order, shape), COMPLEX_OF[a.dtype])


@_leaf(
    "fft_c2r(Tensor a, int[] dims, SymInt last_size, int normalization=0) -> Tensor",
    _in_library(aten._fft_c2r, "fft_c2r"),
    shape="the operand's with `last_size` in the last of `dims`; real" + _LAYOUT,
    edge_cases={**_EDGES, "complex": "imaginary parts that symmetry forbids are ignored"},
    dtypes=_WIDE,
)
def fft_c2r(a: TensorMeta, dims: Sequence[int], last_size: Size) -> TensorMeta:
    """The backward transform to real numbers of the half that a one-sided `fft_r2c` gives."""
    _check(a, dims)
    require(
        bool(last_size >= 1) and bool(a.shape[dims[-1]] == last_size // 2 + 1),
        f"{a.shape[dims[-1]]} elements do not give {last_size}; n // 2 + 1 are needed",
    )
    shape = list(a.shape)
    shape[dims[-1]] = last_size
    if a.device.type == "cuda" and (len(dims) == 1 or _in_one_plan(dims)):
        a = a.like(a.shape)  # the library may overwrite what it reads, and is given a copy
        return a.like(shape, _strides(a, dims, shape), REAL_OF[a.dtype])
    if len(dims) > 1:  # the others first, among complex numbers
        a = fft_c2c(a, dims[:-1], False)
    return a.like(shape, _strides(a, dims[-1:], shape), REAL_OF[a.dtype])
