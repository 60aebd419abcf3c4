"""Programs that go along rows and down their columns, and limits under which they are joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from flambeau_inductor.schedule import Limits
from torch import Tensor

JOINED = Limits(split_on=("cpu",), split_programs=8, across_bytes=0, least_across=4)
APART = replace(JOINED, across_bytes=1 << 40)
ROWS, COLUMNS = 48, 20


def norm_backward(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-5)
    unit, g = (x - mean) * scale, grad * w
    along = unit * (g * unit).mean(-1, keepdim=True)
    dx = (g - g.mean(-1, keepdim=True) - along) * scale
    return dx, (grad * unit).sum(0), grad.sum(0)


def _given_rows(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    scale = w[:1] * x.square().sum(-1, keepdim=True)
    return grad * scale, scale, (grad * x * scale).sum(0) + w


def _batched(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    own = (grad * torch.sigmoid(x)).reshape(6, 8, -1)
    return own * own.sum(-1, keepdim=True), own.sum((0, 1)) - w


def _stored_on_the_way(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    gate = torch.sigmoid(x)
    own = grad * gate
    unit = x * torch.rsqrt(x.square().mean(-1, keepdim=True))
    return own * unit, (own * x * 3).sum(0), own - (own * x).sum(-1, keepdim=True) * w


CASES: dict[str, Callable[..., Any]] = {
    "norm": norm_backward,
    "given rows": _given_rows,
    "batched": _batched,
    "stored on the way": _stored_on_the_way,
}
