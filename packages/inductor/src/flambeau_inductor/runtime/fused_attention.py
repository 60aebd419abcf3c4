"""Fused attention of the library, with derivatives of any order.

In: queries, transposed keys, values and a factor of the scores. Out: the result. Invariant: the
first derivative is the fused backward; where that is itself differentiated (`create_graph=True`),
it is computed by the formula instead, for the fused one has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
DTYPES = (*HALF, torch.float32)
WIDEST = 256
ALIGNED = 8
"""The kernels read so many elements at a time."""


def takes(q: Tensor, width: int, out: int) -> bool:
    """Whether a fused kernel takes heads that are so wide."""
    if q.device.type == "cpu":
        return width == out
    return width % ALIGNED == 0 and out % ALIGNED == 0 and max(width, out) <= WIDEST


def attended(q: Tensor, kt: Tensor, v: Tensor, scale: float, causal: bool = False) -> Tensor:
    """`softmax(q @ kt * scale) @ v`, contiguous as a product's result is; three dimensions are
    heads of one batch each. If `causal`, a query sees no key after its own position."""
    k = kt.transpose(-2, -1)
    if q.dim() == 3:
        return _apply(q[:, None], k[:, None], v[:, None], scale, causal)[:, 0].contiguous()
    return _apply(q, k, v, scale, causal).contiguous()


def _apply(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    given = (_readable(q), _readable(k), _readable(v), scale, causal)
    made: tuple[Tensor, Tensor] = _FusedAttention.apply(*given)  # type: ignore[no-untyped-call]
    return made[0]


def _readable(x: Tensor) -> Tensor:
    """The same with rows in one piece that begin where the kernels can read."""
    rows = x.stride(-1) == 1 and all(step % ALIGNED == 0 for step in x.stride()[:-1])
    return x if rows else x.contiguous()


class _FusedAttention(torch.autograd.Function):
    """The library's kernels as a differentiable function, which `torch.func` takes too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # type: ignore[override]
        q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
    ) -> tuple[Tensor, Tensor]:
        if q.device.type == "cpu":
            made = aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, causal, scale=scale
            )
        elif _flash(q, v):
            made = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
        else:
            made = aten._scaled_dot_product_efficient_attention(
                q, k, v, None, True, 0.0, causal, scale=scale
            )
        return made[0], made[1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, *settings = inputs
        out, sums = output
        ctx.mark_non_differentiable(sums)
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.settings = settings

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return (*_by_formula(grad, *ctx.saved_tensors[:3], *ctx.settings), None, None)
        return (*_back(_readable(grad), ctx.saved_tensors, *ctx.settings), None, None)


def _flash(q: Tensor, v: Tensor) -> bool:
    return q.dtype in HALF and q.shape[-1] == v.shape[-1]


def _back(
    grad: Tensor, saved: Sequence[Tensor], scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, out, sums = saved
    if q.device.type == "cpu":
        made = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, sums, 0.0, causal, scale=scale
        )
        return made[0], made[1], made[2]
    # without dropout the kernels do not read the generator's state
    state = torch.zeros((2,), dtype=torch.int64, device=q.device)
    if _flash(q, v):
        made = aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, sums, None, None, q.shape[2], k.shape[2], 0.0, causal, state, state,
            scale=scale,
        )  # fmt: skip
    else:
        made = aten._scaled_dot_product_efficient_attention_backward(
            grad, q, k, v, None, out, sums, state[0], state[1], 0.0, [True, True, True, False],
            causal, scale=scale,
        )  # fmt: skip
    return made[0], made[1], made[2]


def _by_formula(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    scores = q @ k.mT * scale
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    change = grad @ v.mT
    change = weights * (change - (change * weights).sum(-1, keepdim=True)) * scale
    return change @ k, change.mT @ q, weights.mT @ grad
