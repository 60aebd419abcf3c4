"""Decompositions of scaled dot-product attention.

In: the overloads that `scaled_dot_product_attention` chooses among. Out: the attention prims.
Invariant: dropout is never dropped: with it, the operation stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
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


@decomposition(aten._scaled_dot_product_efficient_attention.default, keep="sdpa")
def efficient_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """The last two results are the state of dropout, of which there is none."""
    if dropout_p != 0.0 or q.ndim != 4 or not compute_log_sumexp or q.shape[1] != k.shape[1]:
        return NotImplemented
    out, logsumexp = p.attention(q, k, v, attn_bias, 0.0, is_causal, scale=scale)
    state = [p.full([], 0, dtype=torch.int64, device=q.device) for _ in range(2)]
    return out, logsumexp, *state


@decomposition(aten._scaled_dot_product_efficient_attention_backward.default, keep="sdpa")
def efficient_attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    del philox_seed, philox_offset
    wants_bias = len(grad_input_mask) > 3 and grad_input_mask[3] and attn_bias is not None
    if dropout_p != 0.0 or q.ndim != 4 or wants_bias or q.shape[1] != k.shape[1]:
        return NotImplemented
    grads = p.attention_backward(
        grad, q, k, v, out, logsumexp, attn_bias, 0.0, is_causal, scale=scale
    )
    return *(g if asked else None for g, asked in zip(grads, grad_input_mask, strict=False)), None
