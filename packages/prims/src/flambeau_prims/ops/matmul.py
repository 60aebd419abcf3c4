"""Matrix product primitives.

In: 2-d (or batched 3-d) operands of one dtype. Out: a contiguous product in that dtype.
Invariant: no broadcasting of batches; half precision accumulates in float32 inside the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_prims._op import MetaResult, Rule, define, require
from flambeau_prims.layout import Size, TensorMeta

_GOLUB = "Golub and Van Loan, Matrix Computations, 1.1"
_EDGES = {
    "nan": "spreads over its row and column, also by 0 times infinity",
    "empty": "an inner size of 0 gives zeros",
    "integers": "wrap",
}


def _product_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    del result
    a, b = [arg for arg in args if isinstance(arg, TensorMeta)][-2:]
    inner: Size = 2 * a.numel() * b.shape[-1]
    return inner


def _check(name: str, ndim: int, a: TensorMeta, b: TensorMeta) -> None:
    require(a.ndim == b.ndim == ndim, f"{name}: {a.ndim}-d and {b.ndim}-d operands")
    require(a.dtype == b.dtype, f"{name}: dtypes {a.dtype} and {b.dtype} differ; cast first")
    require(a.dtype != torch.bool, f"{name}: not defined on {a.dtype}")
    same = bool(a.shape[-1] == b.shape[-2]) and a.shape[:-2] == b.shape[:-2]
    require(same, f"{name}: shapes {a.shape} and {b.shape} do not multiply")


def _mm_rule(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    _check("mm", 2, a, b)
    return a.like((a.shape[0], b.shape[1]))


mm = define(
    "mm(Tensor a, Tensor b) -> Tensor",
    rule=_mm_rule,
    eager=torch.mm,
    tags=("matmul",),
    doc="out[i, j] = sum_k a[i, k] b[k, j].",
    shape="(rows of `a`, columns of `b`)",
    edge_cases=_EDGES,
    source=_GOLUB,
    flops=_product_flops,
)


def _bmm_rule(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    _check("bmm", 3, a, b)
    return a.like((a.shape[0], a.shape[1], b.shape[2]))


bmm = define(
    "bmm(Tensor a, Tensor b) -> Tensor",
    rule=_bmm_rule,
    eager=torch.bmm,
    tags=("matmul",),
    doc="out[n, i, j] = sum_k a[n, i, k] b[n, k, j].",
    shape="(batch, rows of `a`, columns of `b`)",
    edge_cases=_EDGES,
    source=_GOLUB,
    flops=_product_flops,
)


def _added_rule(name: str, ndim: int) -> Rule:
    def rule(
        x: TensorMeta, a: TensorMeta, b: TensorMeta, beta: complex, alpha: complex
    ) -> TensorMeta:
        del beta, alpha
        _check(name, ndim, a, b)
        result = a.like((*a.shape[:-1], b.shape[-1]))
        require(x.dtype == a.dtype, f"{name}: {x.dtype} added to a {a.dtype}; cast first")
        require(x.shape == result.shape, f"{name}: {x.shape} added to {result.shape}")
        return result

    return rule


def _added(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def eager(
        x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: complex, alpha: complex
    ) -> torch.Tensor:
        return function(x, a, b, beta=beta, alpha=alpha)

    return eager


for _name, _function, _ndim, _which in (
    ("addmm", torch.addmm, 2, "two matrices"),
    ("baddbmm", torch.baddbmm, 3, "each pair of matrices"),
):
    define(
        f"{_name}(Tensor x, Tensor a, Tensor b, Scalar beta, Scalar alpha) -> Tensor",
        rule=_added_rule(_name, _ndim),
        eager=_added(_function),
        tags=("matmul",),
        doc=f"beta x + alpha a b for {_which}, rounded once to the dtype of the operands.",
        shape="that of `x`, which is that of the product; contiguous",
        edge_cases={**_EDGES, "note": "with beta 0 `x` is not read: its NaN do not matter"},
        source="gemm: Dongarra et al., A Set of Level 3 Basic Linear Algebra Subprograms, 1990",
        flops=_product_flops,
    )


def _int_mm_rule(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    require(a.dtype == torch.int8, f"int_mm: not defined on {a.dtype}, only on int8")
    _check("int_mm", 2, a, b)
    return a.like((a.shape[0], b.shape[1]), dtype=torch.int32)


int_mm = define(
    "int_mm(Tensor a, Tensor b) -> Tensor",
    rule=_int_mm_rule,
    eager=lambda a, b: torch.ops.aten._int_mm.default(a, b),
    tags=("matmul",),
    doc="The product of two int8 matrices, summed in int32.",
    shape="(rows of `a`, columns of `b`), int32",
    edge_cases={"overflow": "wraps beyond 2^31, which needs 2^17 products of one sign"},
    source=_GOLUB,
    flops=_product_flops,
    differentiable=False,
)
