"""Scaled dot-product attention: the fused CPU kernel as a prim; others stay with ATen.

In: the overloads that `scaled_dot_product_attention` chooses among. Out: the attention prims.
Invariant: dropout is never dropped: with it, the operation stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp.emit import p
from flambeau_prims.table import decomposition

aten = torch.ops.aten


@decomposition(aten._scaled_dot_product_flash_attention_for_cpu.default, keep="sdpa")
def flash_attention_for_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p != 0.0 or q.ndim != 4:
        return NotImplemented
    result = p.attention(q, k, v, attn_mask, 0.0, is_causal, scale=scale)
    return result[0], result[1]


@decomposition(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, keep="sdpa")
def flash_attention_for_cpu_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p != 0.0 or q.ndim != 4:
        return NotImplemented
    return tuple(
        p.attention_backward(grad, q, k, v, out, logsumexp, attn_mask, 0.0, is_causal, scale=scale)
    )
