"""The same front door with Triton kernels, under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import fx
from torch.nn import functional as F

from tests.poison import poisoned_memory

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.usefixtures("poisoned_memory")
assert poisoned_memory  # the fixture is found by its name in this module


def softmax(x: torch.Tensor) -> Any:
    return torch.softmax(x * 2, -1)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return F.gelu(F.layer_norm(x, (32,), w, b))


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return F.relu(F.linear(x, w, b)).sum(0)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "softmax": (softmax, [(7, 33)]),
    "layer_norm": (layer_norm, [(5, 32), (32,), (32,)]),
    "linear": (linear, [(6, 16), (8, 16), (8,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_triton_kernels(name: str, tmp_path: Path):
    function, shapes = CASES[name]
    inputs = [torch.randn(shape) for shape in shapes]
    gm = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
    options = Options(kernels="triton", cache_dir=str(tmp_path / "cache"), verify=True)
    compiled = flambeau_inductor.compile(gm, inputs, options=options)
    assert "triton.jit" in compiled.report.sources["kernels.py"]
    assert not compiled.report.cache_hit
    (result,) = compiled(list(inputs))
    torch.testing.assert_close(result, function(*inputs), rtol=1e-4, atol=1e-5)
    assert flambeau_inductor.compile(gm, inputs, options=options).report.cache_hit
