"""Convolutions of one point are products where images are channels-last and large enough."""

from __future__ import annotations

from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import CompiledGraph, Options
from flambeau_inductor._torch_compat import onednn_linear
from torch import Tensor, fx

ONEDNN = "mkldnn._linear_pointwise.default"

pytestmark = pytest.mark.skipif(onednn_linear() is None, reason="torch without oneDNN")


def built(function: Any, *inputs: Tensor) -> CompiledGraph:
    gm = flambeau_prims.lower(fx.symbolic_trace(function), list(inputs))
    return flambeau_inductor.compile(gm, list(inputs), options=Options(products="onednn"))


def last(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def steps(tensor: Tensor) -> list[int]:
    """Strides of dimensions that have any: of one element, torch's kernels leave them open."""
    return [n for n, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def close(got: Tensor, eager: Tensor, exact: Tensor) -> None:
    assert steps(got) == steps(eager)
    error, allowed = ((x - exact).square().mean().sqrt() for x in (got, eager))
    assert error <= 2 * allowed + 1e-7


@pytest.mark.parametrize("bias", [False, True])
def test_an_image_of_points(bias: bool) -> None:
    inputs = (last(2, 64, 16, 14), torch.randn(96, 64, 1, 1), torch.randn(96))

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.relu(torch.conv2d(torch.tanh(x), w, b if bias else None)) + 1

    compiled = built(function, *inputs)
    assert compiled.report.externs == {ONEDNN: 1}
    (got,) = compiled(list(inputs))
    close(got, function(*inputs), function(*(x.double() for x in inputs)))


OTHERS = {
    "rows": (torch.randn(2, 64, 16, 14), (96, 64, 1, 1), {}),
    "windows": (last(2, 64, 16, 14), (96, 64, 3, 3), {}),
    "steps": (last(2, 64, 16, 14), (96, 64, 1, 1), {"stride": 2}),
    "a border": (last(2, 64, 16, 14), (96, 64, 1, 1), {"padding": 1}),
    "groups": (last(2, 64, 16, 14), (96, 32, 1, 1), {"groups": 2}),
    "few points": (last(1, 64, 2, 2), (96, 64, 1, 1), {}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_librarys(case: str) -> None:
    x, shape, settings = OTHERS[case]
    w = torch.randn(shape)
    compiled = built(lambda x, w: torch.conv2d(x, w, **settings), x, w)
    assert compiled.report.externs == {"aten.convolution.default": 1}
    (got,) = compiled([x, w])
    eager = torch.conv2d(x, w, **settings)
    assert got.stride() == eager.stride()
    torch.testing.assert_close(got, eager)


@pytest.mark.parametrize("wanted", [[True, True, True], [True, True, False], [False, True, True]])
def test_its_backward(wanted: list[bool]) -> None:
    inputs = (last(2, 96, 16, 14), last(2, 64, 16, 14), torch.randn(96, 64, 1, 1))

    def function(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        results = torch.ops.aten.convolution_backward(
            g, torch.sin(x), w, [96], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted
        )
        return tuple(results[k] * 2 for k in range(3) if wanted[k])

    compiled = built(function, *inputs)
    assert set(compiled.report.externs) == {ONEDNN}
    exact = function(*(x.double() for x in inputs))
    for got, eager, best in zip(compiled(list(inputs)), function(*inputs), exact, strict=True):
        close(got, eager, best)
