"""Gradients inside of a `vmap`: one sample of the batch after the other.

In: a backward function and batched cotangents. Out: the batched gradients. Invariant: the function
is called without the hidden dimensions, outermost first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import batch_of

Backward = Callable[..., Sequence[torch.Tensor | None]]


def over_samples(
    run: Backward, ctx: Any, cotangents: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    """The gradients for each sample, put together again; `run` must leave what was saved."""
    batch = batch_of([item for item in cotangents if item is not None])
    if batch is None:
        return run(ctx, *cotangents)
    shown = [None if item is None else batch.shown(item) for item in cotangents]
    samples = [
        over_samples(run, ctx, [None if item is None else _sample(item, n) for item in shown])
        for n in range(max(batch.size, 1))
    ]
    return tuple(
        None if column[0] is None else batch.hidden(torch.stack(column)[: batch.size])
        for column in zip(*samples, strict=True)
    )


def _sample(batch: torch.Tensor, place: int) -> torch.Tensor:
    """One of them; where there is none, zeros of which only the shapes of gradients are wanted."""
    return batch[place] if len(batch) else batch.new_zeros(batch.shape[1:])
