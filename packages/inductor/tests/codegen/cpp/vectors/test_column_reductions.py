"""Reductions over rows take several vectors of columns side by side, through all their passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from torch import Tensor, fx

SHAPES = {
    "whole tiles": (70, 2048),
    "a rest": (70, 1037),
    "few rows": (9, 1024),
    "planes": (3, 50, 723),
}


def batch_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.batch_norm(x.flatten(0, -2), None, None, w, w.sin(), training=True)


def weighed(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    total = (x * w.exp()).sum(-2)
    return total, (x - total.unsqueeze(-2)) * torch.sigmoid(w)


def variance(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    found = torch.var_mean(x, -2)
    return found[0], found[1] * w


def outer(x: Tensor, w: Tensor) -> Tensor:
    """A row value that varies along the outer axis alone."""
    scale = torch.exp(x[..., :1, :1])
    return torch.softmax(x * scale, -2) + w


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "softmax": lambda x, w: torch.softmax(x * w, -2),
    "log_softmax": lambda x, w: torch.log_softmax(x, -2),
    "logsumexp": lambda x, w: torch.logsumexp(x, -2) * w,
    "batch norm": batch_norm,
    "weighed": weighed,
    "outer": outer,
    "variance": variance,
    "argmax": lambda x, w: (x.argmax(-2), x.amax(-2), x.amin(-2) + w),
    "any": lambda x, w: ((x > 2).any(-2), (x * 100).int().sum(-2)),
    "cumsum": lambda x, w: torch.cumsum(x * w, -2),
    "cumprod": lambda x, w: torch.cumprod(1 + x / 100, -2) + x.mean(-2, keepdim=True),
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("shape", "dtype"), [*((shape, torch.float32) for shape in SHAPES), ("a rest", torch.bfloat16)]
)
def test_every_pass(shape: str, dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randn(SHAPES[shape]).to(dtype)
    inputs = [x, torch.randn(x.shape[-1]).to(dtype)]

    def all_of_them(x: Tensor, w: Tensor) -> list[Tensor]:
        made = (function(x, w) for function in FUNCTIONS.values())
        return [t for each in made for t in (each if isinstance(each, tuple) else (each,))]

    gm = flambeau_prims.lower(fx.symbolic_trace(all_of_them), inputs)
    options = Options(cache_dir=str(tmp_path), verify=True)
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    assert "for (long t = 0;" in compiled.report.sources["kernels.cpp"]
    wanted, exact = all_of_them(*inputs), all_of_them(*(value.double() for value in inputs))
    for got, eager, best in zip(compiled(list(inputs)), wanted, exact, strict=True):
        assert got.dtype == eager.dtype and got.shape == eager.shape
        if not got.is_floating_point():
            assert torch.equal(got, eager)
            continue
        ours, theirs = ((t.double() - best).square().mean().sqrt() for t in (got, eager))
        scale = best.square().mean().sqrt()
        assert ours <= 3 * theirs + scale * (1e-6 if dtype == torch.float32 else 1e-2)
