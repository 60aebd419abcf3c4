"""Functions that oneDNN applies to what it computes: where, and that the answers stay eager's."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import CompiledGraph, Options
from flambeau_inductor._torch_compat import onednn_convolution, onednn_linear
from flambeau_inductor.lowering import graph as lowering
from flambeau_inductor.lowering.context import LibraryChoices
from flambeau_inductor.options import Fuel
from flambeau_inductor.passes.epilogues import fuse_epilogues
from torch import Tensor, fx

from tests.facts import Info

pytestmark = pytest.mark.skipif(
    onednn_linear() is None or onednn_convolution() is None, reason="torch without oneDNN"
)

CONVOLUTION, LINEAR = "mkldnn._convolution_pointwise.default", "mkldnn._linear_pointwise.default"

Function = Callable[[Tensor], Tensor]


def by_hand(x: Tensor) -> Tensor:
    """The gelu of GPT-2."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


FUNCTIONS: dict[str, tuple[Function, str]] = {
    "hardswish": (F.hardswish, "hardswish"),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), "leaky_relu"),
    "silu": (F.silu, "silu"),
    "gelu": (F.gelu, "gelu"),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
    "gelu by hand": (by_hand, "gelu_tanh"),
}
W, B = torch.randn(48, 32, 3, 3) * 0.1, torch.randn(48)
V = torch.randn(16, 48, 3, 3) * 0.1
P, Q = torch.randn(96, 64) * 0.2, torch.randn(32, 96) * 0.2


def convolutions(f: Function) -> Function:
    return lambda x: torch.conv2d(f(torch.conv2d(x, W.to(x), B.to(x), padding=1)), V.to(x))


def products(f: Function) -> Function:
    return lambda x: f(x @ P.to(x).t()) @ Q.to(x).t()


def linear(f: Function) -> Function:
    return lambda x: F.linear(f(F.linear(x, P.to(x))), Q.to(x))


def image(layout: torch.memory_format = torch.contiguous_format) -> Tensor:
    return torch.randn(2, 32, 24, 24).to(memory_format=layout)


CASES: dict[str, tuple[Callable[[Function], Function], Callable[[], Tensor], str]] = {
    "images": (convolutions, image, CONVOLUTION),
    "channels last": (convolutions, lambda: image(torch.channels_last), CONVOLUTION),
    "matrices": (products, lambda: torch.randn(512, 64), LINEAR),
    "in three dimensions": (linear, lambda: torch.randn(4, 128, 64), LINEAR),
}


@pytest.fixture(autouse=True)
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = LibraryChoices(lambda sizes: True, 1, lambda name: True)
    module = import_module("flambeau_inductor.compile")
    monkeypatch.setattr(module, "library_choices", lambda *asked: choices)


def built(
    function: Function, x: Tensor, info: Info | None = None, **options: object
) -> CompiledGraph:
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    return flambeau_inductor.compile(gm, [x], info, Options(**options))  # type: ignore[arg-type]


def close(got: Tensor, function: Function, x: Tensor) -> None:
    eager, exact = function(x), function(x.double())
    assert got.stride() == eager.stride()
    error, allowed = ((y - exact).square().mean().sqrt() for y in (got, eager))
    assert error <= 2 * allowed + 1e-7


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("case", CASES)
def test_a_function_goes_into_the_call_before_it(case: str, name: str) -> None:
    around, make, target = CASES[case]
    function, x = around(FUNCTIONS[name][0]), make()
    compiled = built(function, x)
    assert compiled.report.kernels == 0
    assert compiled.report.externs[target] >= 1
    (got,) = compiled([x])
    close(got, function, x)


ODD = (math.nan, math.inf, -math.inf, 1e30, -1e30, -3.0, 3.0, 0.0, 100.0, -100.0)


FAR: dict[str, tuple[Function, tuple[int, ...], str]] = {
    # a window of one point and of zeros around the image
    "images": (
        lambda x: torch.conv2d(x, torch.ones(16, 1, 3, 1), None, 1, (32, 0), (32, 1), 16),
        (2, 16, 32, 10),
        CONVOLUTION,
    ),
    "matrices": (lambda x: x @ torch.ones(1, 8), (320, 1), LINEAR),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("case", FAR)
def test_odd_numbers_come_out_as_in_eager(case: str, name: str) -> None:
    around, shape, target = FAR[case]
    x = torch.tensor(ODD).repeat(math.prod(shape) // len(ODD)).view(shape)

    def function(x: Tensor) -> Tensor:
        return FUNCTIONS[name][0](around(x))

    compiled = built(function, x)
    assert compiled.report.externs == {target: 1}
    assert compiled.report.kernels == 0
    torch.testing.assert_close(compiled([x])[0], function(x), equal_nan=True)


LEFT: dict[str, Function] = {
    "relu, which makes zeros of NaN": torch.relu,
    "relu6, which does too": F.relu6,
    "another number": lambda x: x * (x.add(3.0).clamp(min=0.0).clamp(max=5.0)) / 6.0,
    "no slope": lambda x: torch.where(x > 0.0, x, x * 0.0),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_would_not_be_computed_as_eager_does(name: str) -> None:
    function, x = convolutions(LEFT[name]), image()
    compiled = built(function, x)
    assert compiled.report.kernels == 1
    close(compiled([x])[0], function, x)


def test_a_result_that_others_read_stays() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.conv2d(x, W.to(x), padding=1)
        return torch.conv2d(F.hardswish(y), V.to(x)).amax() + y

    x = image()
    compiled = built(function, x)
    assert compiled.report.kernels > 0
    close(compiled([x])[0], function, x)


def test_a_loop_computes_what_only_it_reads() -> None:
    def function(x: Tensor) -> Tensor:
        return F.hardswish(torch.conv2d(x, W.to(x), padding=1)).sum((2, 3))

    x = image()
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    assert fuse_epilogues(gm, lambda name: True) is gm
    close(built(function, x)([x])[0], function, x)


def test_other_types_are_left_to_loops() -> None:
    function, x = convolutions(F.hardswish), image().double()
    compiled = built(function, x)
    assert set(compiled.report.externs) == {"aten.convolution.default"}
    torch.testing.assert_close(compiled([x])[0], function(x))


def test_fuel_for_fusions_is_used_by_calls_first() -> None:
    function, x = convolutions(F.hardswish), image()
    kernels = {n: built(function, x, fuel=Fuel(fusions=n)).report.kernels for n in (0, 1)}
    assert kernels == {0: 1, 1: 0}


@pytest.mark.parametrize("fuel", range(9))
def test_each_operation_takes_fuel(fuel: int) -> None:
    function, x = convolutions(F.hardswish), image()
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    choices = LibraryChoices(lambda sizes: True, 1, lambda name: True)
    fused = fuse_epilogues(gm, choices.epilogues)
    assert fused is not gm and torch.equal(fused(x), gm(x))
    assert all(node.users for node in fused.graph.nodes if node.op == "call_function")
    made = lowering.lower_graph(fused, [x], Info(), Fuel(lowerings=fuel), None, False, choices)
    assert len(made.lowered) <= fuel
    assert len(made.absorbed) == 0 or fuel >= len(made.lowered)


def test_weights_that_stay_are_packed_with_it() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.hardswish(torch.conv2d(x, w, padding=1))

    x, info = image(), Info(static_inputs=(1,))
    gm = flambeau_prims.lower(fx.symbolic_trace(function), [x, W])
    compiled = flambeau_inductor.compile(gm, [x, W], info, Options(freezing=True))
    assert f"{CONVOLUTION}.packed" in compiled.report.sources["wrapper.py"]
    for _ in range(2):
        close(compiled([x, W])[0], lambda x: function(x, W.to(x)), x)


def test_without_the_library_loops_compute_it() -> None:
    function, x = convolutions(F.gelu), image()
    with torch.backends.mkldnn.flags(enabled=False):  # type: ignore[no-untyped-call]
        compiled = built(function, x)
        assert set(compiled.report.externs) == {"aten.convolution.default"}
        assert compiled.report.kernels == 1
        close(compiled([x])[0], function, x)


def test_a_function_is_left_to_a_loop_by_name() -> None:
    function, x = convolutions(F.hardswish), image()
    compiled = built(function, x, skip_passes=("epilogue_hardswish",))
    assert compiled.report.kernels == 1
    close(compiled([x])[0], function, x)
