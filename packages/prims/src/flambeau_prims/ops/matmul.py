"""Matrix products.

In: 2-d (or batched 3-d) operands of one dtype. Out: a contiguous product in that dtype.
Invariant: no broadcasting of batches; half precision accumulates in float32 inside the library.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_prims._op import MetaResult, define, require
from flambeau_prims.layout import Size, TensorMeta


def _product_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    del result
    a, b = args
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
    doc="The product of two matrices.",
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
    doc="The products of two equally long rows of matrices.",
    flops=_product_flops,
)
