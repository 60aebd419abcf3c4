"""Parts of a tensor that are put side by side: no lane is tested where no vector is cut."""

from __future__ import annotations

from pathlib import Path

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import Tensor, fx


def turned(x: Tensor, y: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * y + torch.cat((-x[..., half:], x[..., :half]), -1) * y


def padded(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (32, 16)).sum(-1, keepdim=True) + y


CASES = [
    (turned, 128, torch.float32, True),
    (turned, 128, torch.bfloat16, True),
    (turned, 64, torch.float64, True),
    (turned, 104, torch.float32, False),
    (turned, 26, torch.float32, False),
    (padded, 80, torch.float32, False),
    (padded, 75, torch.float32, False),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_masks(case: int, tmp_path: Path) -> None:
    function, wide, dtype, same = CASES[case]
    inputs = [torch.randn(3, 7, wide).to(dtype), torch.randn(wide).to(dtype)]
    gm = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
    compiled = flambeau_inductor.compile(gm, inputs, options=Options(cache_dir=str(tmp_path)))
    text = compiled.report.sources["kernels.cpp"]
    if same:
        assert "every(" not in text
    (got,) = compiled(list(inputs))
    torch.testing.assert_close(got, function(*inputs))
