"""Convolutions of one point are products where images are channels-last; whose others are."""

from __future__ import annotations

from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import CompiledGraph, Options
from flambeau_inductor._torch_compat import onednn_linear
from torch import Tensor, fx

from tests import accuracy
from tests.facts import Info

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


def close(got: Tensor, eager: Tensor, exact: Tensor, in_order: float = 0.0) -> None:
    """in_order: the error that the sums may have besides, since a library adds as it does."""
    assert steps(got) == steps(eager)
    error, allowed = ((x - exact).square().mean().sqrt() for x in (got, eager))
    assert error <= 2 * allowed + 1e-7 + in_order


@pytest.mark.parametrize("bias", [False, True])
def test_an_image_of_points(bias: bool) -> None:
    inputs = (last(2, 64, 16, 14), torch.randn(96, 64, 1, 1), torch.randn(96))

    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.relu(torch.conv2d(torch.tanh(x), w, b if bias else None)) + 1

    compiled = built(function, *inputs)
    assert compiled.report.externs == {ONEDNN: 1}
    (got,) = compiled(list(inputs))
    close(got, function(*inputs), function(*(x.double() for x in inputs)))


PRODUCTS: dict[str, tuple[Tensor, tuple[int, ...], dict[str, Any], str]] = {
    "steps": (last(2, 64, 32, 28), (96, 64, 1, 1), {"stride": 2}, ONEDNN),
    "other steps": (last(2, 64, 16, 45), (96, 64, 1, 1), {"stride": (1, 3)}, ONEDNN),
    "few points": (last(1, 64, 2, 2), (96, 64, 1, 1), {}, "aten.mm.out"),
    "many terms": (last(8, 4000, 1, 3), (48, 4000, 1, 1), {}, "aten.mm.out"),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products(case: str) -> None:
    x, shape, settings, library = PRODUCTS[case]
    w = torch.randn(shape)
    compiled = built(lambda x, w: torch.conv2d(x, w, **settings), x, w)
    assert set(compiled.report.externs) == {library}
    (got,) = compiled([x, w])
    exact = torch.conv2d(x.double(), w.double(), **settings)
    close(got, torch.conv2d(x, w, **settings), exact)


ALONE = {
    "one small image": (torch.randn(1, 32, 14, 14), (64, 32, 3, 3), {"padding": 1}),
    "channels last": (last(1, 32, 14, 14), (64, 32, 3, 3), {"padding": 1}),
    "with bias": (torch.randn(1, 32, 17, 15), (64, 32, 3, 2), {"bias": torch.randn(64)}),
}


@pytest.mark.parametrize("case", ALONE)
@pytest.mark.parametrize("freezing", [False, True])
def test_what_torch_would_make_a_matrix_of(case: str, freezing: bool) -> None:
    x, shape, settings = ALONE[case]
    w = torch.randn(shape)

    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.conv2d(x, w, **settings)

    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x, w])
    info = Info(static_inputs=(1,))
    options = Options(freezing=freezing)
    compiled = flambeau_inductor.compile(gm, [x, w], info, options)
    assert compiled.report.externs == {"mkldnn._convolution_pointwise.default": 1}
    assert (".packed" in compiled.report.sources["wrapper.py"]) == freezing
    for _ in range(2):
        (got,) = compiled([x, w])
        torch.testing.assert_close(got, function(x, w), rtol=1e-4, atol=1e-4)
        assert steps(got) == steps(function(x, w))


OTHERS = {
    "windows": (last(2, 64, 16, 14), (96, 64, 3, 3), {}),
    "a border": (last(2, 64, 16, 14), (8, 64, 1, 1), {"padding": 1}),
    "groups": (last(2, 64, 16, 14), (96, 32, 1, 1), {"groups": 2}),
    "little to do": (torch.randn(1, 32, 5, 4), (64, 32, 3, 3), {}),
    "few windows": (torch.randn(1, 512, 4, 4), (512, 512, 3, 3), {}),
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
    points = 2 * 16 * 14  # which a weight's gradient is a sum over; the results are doubled
    for got, eager, best in zip(compiled(list(inputs)), function(*inputs), exact, strict=True):
        close(got, eager, best, accuracy.of_sums_in_order(points, scale=2.0))


BACKWARD = {
    "small": (last(2, 24, 6, 5), last(2, 16, 6, 5), (24, 16, 1, 1), [1, 1], True),
    "steps": (last(2, 24, 6, 5), last(2, 16, 12, 10), (24, 16, 1, 1), [2, 2], False),
    "large": (last(4, 96, 64, 64), last(4, 16, 64, 64), (96, 16, 1, 1), [1, 1], False),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_whose_backward_is_products(case: str) -> None:
    g, x, w_shape, stride, products = BACKWARD[case]
    inputs = (g, x, torch.randn(w_shape))

    def function(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        how = (None, stride, [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
        results = torch.ops.aten.convolution_backward(g, x, w, *how)
        return results[0], results[1]

    compiled = built(function, *inputs)
    library = "aten.mm.out" if products else "aten.convolution_backward.default"
    assert set(compiled.report.externs) == {library}
    exact = function(*(x.double() for x in inputs))
    for got, eager, best in zip(compiled(list(inputs)), function(*inputs), exact, strict=True):
        close(got, eager, best)
