"""Fused attention of the library, with derivatives of any order.

In: queries, transposed keys, values, a factor of the scores and a bias. Out: the result. Invariant:
the first derivative is the fused backward; where that is itself differentiated
(`create_graph=True`), it is computed by the formula instead, for the fused one has none.
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
BIAS_ALIGNED = 16
"""Rows of a bias begin at multiples of so many elements."""


def takes(q: Tensor, width: int, out: int) -> bool:
    """Whether a fused kernel takes heads that are so wide."""
    if q.device.type == "cpu":
        return width == out
    return width % ALIGNED == 0 and out % ALIGNED == 0 and max(width, out) <= WIDEST


def attended(
    q: Tensor, kt: Tensor, v: Tensor, scale: float, causal: bool = False, bias: Tensor | None = None
) -> Tensor:
    """`softmax(q @ kt * scale + bias) @ v`, contiguous as a product's result is; three dimensions
    are heads of one batch each. If `causal`, a query sees no key after its own position."""
    k = kt.transpose(-2, -1)
    if q.dim() == 3:
        return _apply(q[:, None], k[:, None], v[:, None], None, scale, causal)[:, 0].contiguous()
    return _apply(q, k, v, bias, scale, causal).contiguous()


def _apply(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, causal: bool
) -> Tensor:
    full = None if bias is None else _whole(bias, (*q.shape[:3], k.shape[2]))
    given = (readable(q), readable(k), readable(v), full, scale, causal)
    made: tuple[Tensor, Tensor] = _FusedAttention.apply(*given)  # type: ignore[no-untyped-call]
    return made[0]


def readable(x: Tensor) -> Tensor:
    """The same with rows in one piece that begin where the kernels can read; what is repeated along
    other dimensions stays so."""
    if x.stride(-1) == 1 and all(step % ALIGNED == 0 for step in x.stride()[:-1]):
        return x
    once = [slice(1) if step == 0 else slice(None) for step in x.stride()[:-1]]
    return x[(*once, slice(None))].contiguous().expand(x.shape)


def _whole(bias: Tensor, shape: Sequence[int]) -> Tensor:
    """A bias of each score, as the kernels read it."""
    keys = shape[-1]
    rows = readable(bias.expand(*bias.shape[:-1], keys))
    if keys % BIAS_ALIGNED:
        rows = torch.nn.functional.pad(rows, (0, -keys % BIAS_ALIGNED))[..., :keys]
    return rows.expand(shape)


class _FusedAttention(torch.autograd.Function):
    """The library's kernels as a differentiable function, which `torch.func` takes too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # type: ignore[override]
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, causal: bool
    ) -> tuple[Tensor, Tensor]:
        if q.device.type == "cpu":
            made = aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, causal, attn_mask=bias, scale=scale
            )
        elif _flash(q, v) and bias is None:
            made = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
        else:
            made = aten._scaled_dot_product_efficient_attention(
                q, k, v, bias, True, 0.0, causal, scale=scale
            )
        return made[0], made[1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        q, k, v, bias, *settings = inputs
        out, sums = output
        ctx.mark_non_differentiable(sums)
        ctx.save_for_backward(q, k, v, bias, out, sums)
        ctx.settings = settings

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        learns = ctx.needs_input_grad[3]
        if torch.is_grad_enabled():
            made: tuple[Tensor | None, ...]
            made = _by_formula(grad, *ctx.saved_tensors[:4], *ctx.settings)
        else:
            scale, causal = ctx.settings
            q, k, v, bias = _back(readable(grad), ctx.saved_tensors, scale, causal, learns)
            # as the products' own would lie
            made = q.contiguous(), k.mT.contiguous().mT, v.contiguous(), bias
        return (*made[:3], made[3] if learns else None, None, None)


def _flash(q: Tensor, v: Tensor) -> bool:
    return q.dtype in HALF and q.shape[-1] == v.shape[-1]


def _back(
    grad: Tensor, saved: Sequence[Tensor], scale: float, causal: bool, bias_learns: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    q, k, v, bias, out, sums = saved
    if q.device.type == "cpu":
        made = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, sums, 0.0, causal, attn_mask=bias, scale=scale
        )
        whole = _by_formula(grad, q, k, v, bias, scale, causal) if bias_learns else None
        return made[0], made[1], made[2], None if whole is None else whole[3]  # it has none of that
    # without dropout the kernels do not read the generator's state
    state = torch.zeros((2,), dtype=torch.int64, device=q.device)
    if _flash(q, v) and bias is None:
        made = aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, sums, None, None, q.shape[2], k.shape[2], 0.0, causal, state, state,
            scale=scale,
        )  # fmt: skip
    else:
        made = aten._scaled_dot_product_efficient_attention_backward(
            grad, q, k, v, bias, out, sums, state[0], state[1], 0.0,
            [True, True, True, bias_learns], causal, scale=scale,
        )  # fmt: skip
    return made[0], made[1], made[2], made[3] if bias_learns else None


def _by_formula(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores = q @ k.mT * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    change = grad @ v.mT
    of_scores = weights * (change - (change * weights).sum(-1, keepdim=True))
    change = of_scores * scale
    return change @ k, change.mT @ q, weights.mT @ grad, of_scores
