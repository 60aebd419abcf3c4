"""Products by matrices of four bits an element, by the machine instructions that the interpreter
does not have (`tests/templates/gemm/test_packed_products.py` has what it has)."""

from __future__ import annotations

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def scaled(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    numbers = torch.stack((w & 15, w >> 4), -1).flatten(1).to(x.dtype) - 8
    groups = numbers.unflatten(1, (scale.shape[1], -1)) * scale.unsqueeze(-1)
    return F.linear(x, groups.flatten(1))


def unscaled(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return F.linear(x, torch.stack((w & 15, w >> 4), -1).flatten(1).to(x.dtype) - 3)


@pytest.mark.parametrize("of", [scaled, unscaled])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 8, 11, 16])
@pytest.mark.parametrize("sizes", [(64, 256, 32), (1000, 2176, 128), (4096, 4096, 4096)], ids=str)
def test_elements_are_those_of_eager(
    sizes: tuple[int, int, int], rows: int, dtype: torch.dtype, of: object
) -> None:
    """Vectors of one 1 and zeros read the elements off, bit by bit; sums are near float64's."""
    columns, inner, group = sizes
    torch.manual_seed(rows)
    w = torch.randint(0, 256, (columns, inner // 2), dtype=torch.uint8, device="cuda")
    scale = (torch.rand(columns, inner // group, device="cuda") * 0.1).to(dtype)
    x = torch.randn(rows, inner, device="cuda").to(dtype)
    unit = torch.zeros_like(x)
    unit[torch.arange(rows), torch.arange(rows) * 13 % inner] = 1
    function = {"scaled": scaled, "unscaled": unscaled}[of.__name__]  # type: ignore[attr-defined]
    graph = flambeau_prims.lower(fx.symbolic_trace(function), [x, w, scale])
    compiled = flambeau_inductor.compile(graph, [x, w, scale])
    assert compiled.report.externs == {}
    (found,) = compiled([unit, w, scale])
    assert torch.equal(found, function(unit, w, scale))
    (found,) = compiled([x, w, scale])
    wide = function(torch.eye(inner, device="cuda", dtype=dtype), w, scale).double()
    expected = x.double() @ wide
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2 * expected.std())
