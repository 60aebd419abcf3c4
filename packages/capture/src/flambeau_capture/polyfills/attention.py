"""Polyfills of the operator that `flex_attention` calls, by all scores, and of its masks.

In, out: what the functions of the same name take and give. Invariant: products, the change of the
scores and the softmax are in the precision that eager has for them, and the result is laid out in
the order of the query's dimensions, the last one innermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex
from torch.overrides import TorchFunctionMode


class IndexedByTensors(TorchFunctionMode):
    """Within it, `x[i]` takes tensors of no dimension as they are, each element its own."""


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Tensor, ...] = (),
    mask_mod_other_buffers: tuple[Tensor, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """The result; of each row of scores the logarithm of what its softmax divides by, and the
    largest, both in powers of 2."""
    batches, heads = query.shape[0], query.shape[1]
    if key.shape[0] != batches and key.shape[0] != 1:
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batches} and Bkv={key.shape[0]}")
    if key.shape[1] != heads:
        shared = heads // key.shape[1]
        key, value = (torch.repeat_interleave(each, shared, dim=1) for each in (key, value))
    if key.shape[0] != batches:
        key, value = (each.expand(batches, *each.shape[1:]) for each in (key, value))
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(precision) @ key.to(precision).mT) * scale
    at = [torch.arange(size, device=scores.device) for size in scores.shape]
    with IndexedByTensors():
        kept = _on_each(block_mask[-1], (), len(mask_mod_other_buffers))
        changed = _on_each(score_mod, (0,), len(score_mod_other_buffers))
        mask, scores = (
            kept(*at, *mask_mod_other_buffers),
            changed(scores, *at, *score_mod_other_buffers),
        )
    scores = torch.where(
        mask, scores, torch.full((), -math.inf, dtype=precision, device=scores.device)
    )
    largest = scores.amax(-1)
    masked = largest == -math.inf  # rows of which nothing is left
    total = torch.where(masked, -math.inf, scores.logsumexp(-1))
    weights = torch.where(masked[..., None], 0.0, scores.softmax(-1))
    result = weights.to(query.dtype) @ value.to(query.dtype)
    order = sorted(range(3), key=lambda dim: -query.stride()[dim]) + [3]
    laid = result.permute(order).contiguous()
    back = [order.index(dim) for dim in range(4)]
    return laid.permute(back), total / math.log(2), largest / math.log(2)


def create_mask(
    mod_fn: Callable[..., Tensor],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """Which scores are kept: what a mask says, or all that a change of scores leaves finite."""
    if device is None:
        device = torch.accelerator.current_accelerator() or "cpu"
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    at = [torch.arange(size, device=device) for size in sizes]
    with IndexedByTensors():
        if flex._get_mod_type(mod_fn) == flex._ModificationType.MASK_MOD:
            return _on_each(mod_fn, (), 0)(*at)
        return ~torch.isneginf(_on_each(mod_fn, (0,), 0)(torch.zeros(sizes, device=device), *at))


def _on_each(fn: Callable[..., Tensor], first: tuple[int, ...], more: int) -> Callable[..., Tensor]:
    """A function of one score, and of its batch, head, query and key, mapped over all of each."""
    for place in (3, 2, 1, 0):
        along = tuple(0 if dim == place else None for dim in range(4))
        fn = torch.vmap(fn, in_dims=(*first, *along, *(None,) * more))
    return fn
