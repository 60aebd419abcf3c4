"""Matrix product primitives.

In: 2-d (or batched 3-d) operands of one dtype. Out: a contiguous product in that dtype.
Invariant: no broadcasting of batches; half precision accumulates in float32 inside the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import MetaResult, primitive, require
from flambeau_prims.shape_rules import Size, TensorMeta

_GOLUB = "Golub and Van Loan, Matrix Computations, 1.1"
_EDGES = {
    "nan": "spreads over its row and column, also by 0 times infinity",
    "empty": "an inner size of 0 gives zeros",
    "integers": "wrap",
}


def _product_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    a, b = [arg for arg in args if isinstance(arg, TensorMeta)][-2:]
    inner: Size = 2 * a.numel() * b.shape[-1]
    return inner


_product = partial(
    primitive, tags=("matmul",), source=_GOLUB, flops=_product_flops, edge_cases=_EDGES
)


def _multiplied(ndim: int, a: TensorMeta, b: TensorMeta) -> TensorMeta:
    require(a.ndim == b.ndim == ndim, f"{a.ndim}-d and {b.ndim}-d operands")
    require(a.dtype == b.dtype, f"dtypes {a.dtype} and {b.dtype} differ; cast first")
    require(a.dtype != torch.bool, f"not defined on {a.dtype}")
    same = bool(a.shape[-1] == b.shape[-2]) and a.shape[:-2] == b.shape[:-2]
    require(same, f"shapes {a.shape} and {b.shape} do not multiply")
    return a.like((*a.shape[:-1], b.shape[-1]))


@_product("mm(Tensor a, Tensor b) -> Tensor", torch.mm, shape="(rows of `a`, columns of `b`)")
def mm(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    """out[i, j] = sum_k a[i, k] b[k, j]."""
    return _multiplied(2, a, b)


@_product(
    "bmm(Tensor a, Tensor b) -> Tensor", torch.bmm, shape="(batch, rows of `a`, columns of `b`)"
)
def bmm(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    """out[n, i, j] = sum_k a[n, i, k] b[n, k, j]."""
    return _multiplied(3, a, b)


def _define_added(name: str, function: Callable[..., Any], ndim: int, which: str) -> None:
    @_product(
        f"{name}(Tensor x, Tensor a, Tensor b, Scalar beta, Scalar alpha) -> Tensor",
        lambda x, a, b, beta, alpha: function(x, a, b, beta=beta, alpha=alpha),
        doc=f"beta x + alpha a b for {which}, rounded once to the dtype of the operands.",
        shape="that of `x`, which is that of the product; contiguous",
        edge_cases={**_EDGES, "note": "with beta 0 `x` is not read: its NaN do not matter"},
        source="gemm: Dongarra et al., A Set of Level 3 Basic Linear Algebra Subprograms, 1990",
    )
    def rule(x: TensorMeta, a: TensorMeta, b: TensorMeta) -> TensorMeta:
        result = _multiplied(ndim, a, b)
        require(x.dtype == a.dtype, f"{x.dtype} added to a {a.dtype}; cast first")
        require(x.shape == result.shape, f"{x.shape} added to {result.shape}")
        return result


_define_added("addmm", torch.addmm, 2, "two matrices")
_define_added("baddbmm", torch.baddbmm, 3, "each pair of matrices")


@_product(
    "int_mm(Tensor a, Tensor b) -> Tensor",
    lambda a, b: torch.ops.aten._int_mm.default(a, b),
    shape="(rows of `a`, columns of `b`), int32",
    edge_cases={"overflow": "wraps beyond 2^31, which needs 2^17 products of one sign"},
    differentiable=False,
)
def int_mm(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    """The product of two int8 matrices, summed in int32."""
    require(a.dtype == torch.int8, f"not defined on {a.dtype}, only on int8")
    return _multiplied(2, a, b).like(dtype=torch.int32)
