"""Large products go to the library that is chosen; the others, and other types, stay torch's."""

from __future__ import annotations

import math
from collections.abc import Callable

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import CompiledGraph, Options
from flambeau_inductor._torch_compat import onednn_linear
from torch import Tensor, fx

from tests import accuracy

ONEDNN = "mkldnn._linear_pointwise.default"

needs_onednn = pytest.mark.skipif(onednn_linear() is None, reason="torch without oneDNN")


def built(function: Callable[..., Tensor], *inputs: Tensor, products: str) -> CompiledGraph:
    gm = flambeau_prims.lower(fx.symbolic_trace(function), list(inputs))
    options = Options(products=products)  # type: ignore[arg-type]
    return flambeau_inductor.compile(gm, list(inputs), options=options)


PRODUCTS: dict[str, Callable[..., Tensor]] = {
    "plain": lambda a, b, c: a @ b,
    "left transposed": lambda a, b, c: a.t().contiguous().t() @ b,
    "right transposed": lambda a, b, c: a @ b.t().contiguous().t(),
    "a bias": lambda a, b, c: torch.addmm(c, a, b),
    "a linear map": lambda a, b, c: F.linear(a, b.t(), c),
    "a part": lambda a, b, c: (a[:, 4:] @ b[4:]) * 2,
    "a computed operand": lambda a, b, c: (a + 1) @ torch.tanh(b),
}


@needs_onednn
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_onednn(name: str) -> None:
    function = PRODUCTS[name]
    inputs = (torch.randn(130, 260), torch.randn(260, 140), torch.randn(140))
    compiled = built(function, *inputs, products="onednn")
    assert compiled.report.externs == {ONEDNN: 1}
    (got,) = compiled(list(inputs))
    eager = function(*inputs)
    exact = function(*(x.double() for x in inputs))
    assert got.stride() == eager.stride()
    error, allowed = ((x - exact).square().mean().sqrt() for x in (got, eager))
    assert error <= 2 * allowed + 1e-7


@needs_onednn
@pytest.mark.parametrize("terms", [1025, 3000, 4096])
def test_long_sums_are_added_in_parts(terms: int) -> None:
    inputs = (torch.randn(terms, 96), torch.randn(terms, 80), torch.randn(80))

    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.addmm(c, a.t(), b)

    compiled = built(function, *inputs, products="onednn")
    counts = compiled.report.externs
    assert set(counts) == {ONEDNN, "mkldnn._linear_pointwise.binary"}
    assert sum(counts.values()) == -(-terms // 1024)
    (got,) = compiled(list(inputs))
    exact = function(*(x.double() for x in inputs))
    error, allowed = ((x - exact).square().mean().sqrt() for x in (got, function(*inputs)))
    parts = sum(counts.values())
    assert error <= allowed + math.sqrt(parts) * accuracy.of_sums_in_order(min(terms, 1024))


def test_the_same_by_the_blas() -> None:
    inputs = (torch.randn(130, 260), torch.randn(260, 140))
    compiled = built(lambda a, b: a @ b, *inputs, products="blas")
    assert compiled.report.externs == {"aten.mm.out": 1}
    assert torch.equal(compiled(list(inputs))[0], inputs[0] @ inputs[1])


STAY = {
    "few operations": (torch.float32, 16, 32, 16),
    "few rows": (torch.float32, 2, 2048, 2048),
    "long sums, few columns": (torch.float32, 64, 4096, 32),
    "other numbers": (torch.float64, 130, 260, 140),
    "half precision": (torch.bfloat16, 130, 260, 140),
}


@needs_onednn
@pytest.mark.parametrize("case", STAY)
def test_others_stay(case: str) -> None:
    dtype, rows, terms, columns = STAY[case]
    inputs = (torch.randn(rows, terms).to(dtype), torch.randn(terms, columns).to(dtype))
    compiled = built(lambda a, b: a @ b, *inputs, products="onednn")
    assert compiled.report.externs == {"aten.mm.out": 1}
    assert torch.equal(compiled(list(inputs))[0], inputs[0] @ inputs[1])


@needs_onednn
def test_a_copy_that_only_reorders_is_not_made() -> None:
    a, b = torch.randn(130, 256), torch.randn(256, 140)
    compiled = built(lambda a, b: a @ b.t().contiguous().t(), a, b, products="onednn")
    assert compiled.report.kernels == 0
    torch.testing.assert_close(compiled([a, b])[0], a @ b, rtol=1e-4, atol=1e-4)
