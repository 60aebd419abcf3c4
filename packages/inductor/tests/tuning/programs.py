"""Calls of the library that templates take the place of, one of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from flambeau_inductor.ir.program import Program
from torch import Tensor
from torch.nn import functional as F

from tests.templates.selection.test_select import program_of

HEADS = (4, 8, 1024, 128)


def forth_and_back(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> Any:
    prims = torch.ops.flambeau_prims
    out, sums = prims.attention.default(q, k, v, None, 0.0, True)
    return prims.attention_backward.default(grad, q, k, v, out, sums, None, 0.0, True)


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Any:
    return torch.ops.flambeau_prims.attention.default(q, k, v, bias, 0.0, False)[0]


def gated(x: Tensor, w: Tensor, ends: Tensor) -> Any:
    return F.silu(torch._grouped_mm(x, w.mT, offs=ends))


def blurred(x: Tensor, w: Tensor) -> Any:
    return torch.relu(F.conv2d(x.permute(0, 3, 1, 2), w, None, 1, 1, 1, 96) * 2)


def of_few_channels(x: Tensor, w: Tensor) -> Any:
    image, taps = (each.permute(0, 3, 1, 2) for each in (x, w))
    return torch.relu(F.conv2d(image, taps, None, 2, 3))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "attention": lambda: program_of(forth_and_back, *[HEADS] * 4),
    "biased": lambda: program_of(biased, *[HEADS] * 3, (4, 8, 1024, 1024)),
    "batch": lambda: program_of(lambda a, b: a @ b, (4096, 64, 64), (4096, 64, 64)),
    "experts": lambda: program_of(gated, (8192, 512), (4, 1024, 512), ends=4),
    "depthwise": lambda: program_of(blurred, (32, 56, 56, 96), (96, 1, 3, 3)),
    "few channels": lambda: program_of(of_few_channels, (32, 112, 112, 3), (64, 7, 7, 3)),
}
