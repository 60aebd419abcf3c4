"""Leaves of scaled dot-product attention and its backward.

In: q [B, H, Lq, E], k [B, Hk, Lk, E], v [B, Hk, Lk, Ev], H a multiple of Hk (each k and v serves
H / Hk heads of q; on CUDA only H == Hk), an additive bias that broadcasts to [B, H, Lq, Lk].
Out: [B, H, Lq, Ev] and the log-sum-exp of each row of scores.
Invariant: no dropout, since the two results could not carry its state to the backward.

On CPU the log-sum-exp is [B, H, Lq] (stored [B, Lq, H]); on CUDA the efficient-attention kernel
pads its rows to a multiple of 32. It is there for `attention_backward` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import MetaResult, require
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.pointwise import FLOATS
from flambeau_prims.shape_rules import Size, TensorMeta, elementwise_strides, ordered_strides

_leaf = partial(leaf, family="attention", tags=("library", "matmul"))
_LSE_ALIGNMENT = 32
_BIAS_ALIGNMENT = 16


def _check(q: TensorMeta, k: TensorMeta, v: TensorMeta, dropout_p: float) -> None:
    require(q.ndim == k.ndim == v.ndim == 4, "q, k and v must be 4-d")
    require(q.dtype == k.dtype == v.dtype and q.dtype in FLOATS, "dtypes differ")
    same = q.shape[0] == k.shape[0] and k.shape[:2] == v.shape[:2] and q.shape[3] == k.shape[3]
    same = bool(same) and k.shape[1] != 0 and bool(q.shape[1] % k.shape[1] == 0)
    require(same and bool(k.shape[2] == v.shape[2]), f"shapes {q.shape}, {k.shape} and {v.shape}")
    require(dropout_p == 0.0, "dropout is not part of this primitive")


def _scores_flops(products: int) -> Callable[[tuple[Any, ...], MetaResult], Size]:
    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
        q, k, v = args[:3] if products == 2 else args[1:4]
        scores: Size = q.numel() * k.shape[2]
        total: Size = products * (scores + scores // q.shape[3] * v.shape[3])
        return total

    return cost


def _cuda_bias(bias: Tensor | None, q: Tensor, k: Tensor) -> Any:
    """The bias as the CUDA kernel wants it: in full shape, rows that start aligned."""
    if bias is None:
        return None
    length = k.shape[2]
    full = bias.expand(*q.shape[:3], length)
    if length % _BIAS_ALIGNMENT:
        extra = _BIAS_ALIGNMENT - length % _BIAS_ALIGNMENT
        full = torch.nn.functional.pad(full, (0, extra))[..., :length]
    return full


def _rows(*operands: Tensor) -> list[Tensor]:
    """The operands with the elements of each row side by side: the library's kernel for a CPU does
    not ask how they lie."""
    return [t if t.stride(-1) == 1 else t.contiguous() for t in operands]


def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *modes: Any, scale: float | None = None
) -> Any:
    if q.device.type == "cpu":
        result = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(
            *_rows(q, k, v), *modes, attn_mask=bias, scale=scale
        )
    else:
        result = torch.ops.aten._scaled_dot_product_efficient_attention.default(
            q, k, v, _cuda_bias(bias, q, k), True, *modes, scale=scale
        )
    return result[:2]


@_leaf(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, float dropout_p, bool is_causal, *,"
    " float? scale=None) -> (Tensor out, Tensor logsumexp)",
    _attention,
    flops=_scores_flops(2),
    shape="[B, H, Lq, Ev] in the layout of the queries, and the logarithms of the rows' sums",
    edge_cases={
        "infinity": "a bias of -inf masks; a row that is masked throughout gives 0 or NaN",
        "note": "if causal, query i sees keys up to i; the second result is for the backward alone",
    },
    source="Vaswani et al.: Attention is all you need, 2017; Dao et al.: FlashAttention, 2022",
    differentiable="by attention_backward, but not by the bias",
)
def attention(
    q: TensorMeta, k: TensorMeta, v: TensorMeta, bias: TensorMeta | None, dropout_p: float
) -> tuple[TensorMeta, TensorMeta]:
    """softmax(q k^T * scale + bias) v; `scale` is 1/sqrt(E) if None; `dropout_p` must be 0."""
    _check(q, k, v, dropout_p)
    if bias is not None:
        require(bias.ndim <= 4, f"a bias of shape {bias.shape}")
    batch, heads, length, _ = q.shape
    shape = (batch, heads, length, v.shape[3])
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    if q.device.type == "cpu":
        strides = elementwise_strides((q,)) if shape == q.shape else None
        lse = (batch, heads, length)
        return (q.like(shape, strides), q.like(lse, ordered_strides(lse, (0, 2, 1)), dtype=wide))
    padded = (length + _LSE_ALIGNMENT - 1) // _LSE_ALIGNMENT * _LSE_ALIGNMENT
    return (
        q.like(shape, ordered_strides(shape, (0, 2, 1, 3))),
        q.like((batch, heads, padded), dtype=wide),
    )


def _backward(grad: Tensor, *operands: Any, scale: float | None = None) -> Any:
    q, k, v, out, logsumexp, bias, _, is_causal = operands
    if q.device.type == "cpu":
        result = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
            *_rows(grad, q, k, v, out), logsumexp, 0.0, is_causal, attn_mask=bias, scale=scale
        )
    else:
        # Without dropout the kernel does not read the generator's state: any two numbers do.
        state = torch.zeros((), dtype=torch.int64, device=q.device)
        result = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default(
            grad, q, k, v, _cuda_bias(bias, q, k), out, logsumexp, state, state, 0.0,
            [True, True, True, False], is_causal, scale=scale,
        )  # fmt: skip
    return result[:3]


@_leaf(
    "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logsumexp,"
    " Tensor? bias, float dropout_p, bool is_causal, *, float? scale=None)"
    " -> (Tensor dq, Tensor dk, Tensor dv)",
    _backward,
    flops=_scores_flops(5),
    shape="those of q, k and v, stored as [B, L, H, E]",
    edge_cases="the scores are computed again from q, k and the logarithms of the sums",
    source="Dao et al.: FlashAttention, 2022",
)
def attention_backward(
    grad: TensorMeta, q: TensorMeta, k: TensorMeta, v: TensorMeta, out: TensorMeta, dropout_p: float
) -> tuple[TensorMeta, ...]:
    """Gradients of q, k and v, given both results of the forward; the bias gets none."""
    _check(q, k, v, dropout_p)
    require(grad.shape == out.shape, f"gradient of shape {grad.shape}")
    return tuple(x.like(x.shape, ordered_strides(x.shape, (0, 2, 1, 3))) for x in (q, k, v))
