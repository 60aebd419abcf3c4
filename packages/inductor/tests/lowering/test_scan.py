"""Scans in kernels, against eager and float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import Tensor, fx

SCANS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cumsum": lambda x, d: torch.cumsum(x, d),
    "cumprod": lambda x, d: torch.cumprod(x, d),
    "logcumsumexp": lambda x, d: torch.logcumsumexp(x, d),
}
FORMS: dict[str, tuple[tuple[int, ...], int]] = {
    "rows": ((37, 301), 1),
    "columns": ((37, 301), 0),
    "between": ((3, 50, 20), 1),
    "one row": ((1000,), 0),
    "one element": ((5, 1), 1),
    "nothing": ((0, 4), 1),
}


def check(
    of: Callable[[Tensor], Tensor], x: Tensor, cache: Path, close: float, *library: str
) -> None:
    low = flambeau_prims.lower(fx.symbolic_trace(of), [x])
    done = flambeau_inductor.compile(low, [x], options=Options(cache_dir=str(cache)))
    assert set(done.report.externs) == set(library)
    (found,) = done([x])
    wanted = of(x)
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=close, atol=close, equal_nan=True)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("form", FORMS)
def test_a_scan_is_one_kernel_with_what_makes_its_elements(
    form: str, name: str, tmp_path: Path
) -> None:
    shape, dim = FORMS[form]
    x = torch.randn(shape) * 0.3 + 0.9
    check(lambda x: SCANS[name](x * 1.01, dim), x, tmp_path, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64])
def test_dtypes(dtype: torch.dtype, tmp_path: Path) -> None:
    x = (torch.randn(33, 70) * 2).to(dtype)
    close = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}.get(dtype, 1e-14)
    library = ["aten.cumsum.out"] if dtype.is_floating_point and dtype.itemsize == 2 else []
    check(lambda x: torch.cumsum(x, 1, dtype=x.dtype), x, tmp_path, close, *library)
    check(lambda x: torch.cumsum(x, 0, dtype=x.dtype), x, tmp_path, close)


@pytest.mark.parametrize("name", SCANS)
def test_what_is_not_finite_goes_on_as_in_eager(name: str, tmp_path: Path) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[-inf, -inf, 1.0, 2.0], [0.0, inf, 1.0, nan], [1.0, nan, 2.0, -inf]])
    check(lambda x: SCANS[name](x, 1), x, tmp_path, 1e-6)


def test_long_sums_keep_the_digits_of_eager(tmp_path: Path) -> None:
    x = torch.rand(3, 100_000)
    low = flambeau_prims.lower(fx.symbolic_trace(lambda x: torch.cumsum(x, 1)), [x])
    done = flambeau_inductor.compile(low, [x], options=Options(cache_dir=str(tmp_path)))
    (found,) = done([x])
    assert torch.equal(found, x.double().cumsum(1).float())


@pytest.mark.parametrize("dim", [0, 1])
def test_running_sums_read_and_store_numbers_that_lie_side_by_side(
    dim: int, tmp_path: Path
) -> None:
    x = torch.randn(512, 640)
    low = flambeau_prims.lower(fx.symbolic_trace(lambda x: torch.cumsum(x, dim)), [x])
    done = flambeau_inductor.compile(low, [x], options=Options(cache_dir=str(tmp_path)))
    assert "for (long l = 0" not in done.report.sources["kernels.cpp"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_half_precision_along_memory_is_eagers_to_the_bit(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return SCANS[name](x * 2, -1), SCANS[name](x.int(), -1).to(dtype)

    x = (torch.randn(9, 200) * 0.1 + 1).to(dtype)
    low = flambeau_prims.lower(fx.symbolic_trace(function), [x])
    done = flambeau_inductor.compile(low, [x], options=Options(cache_dir=str(tmp_path)))
    assert done.report.externs == {f"aten.{name}.out": 1}
    for found, wanted in zip(done([x]), function(x), strict=True):
        assert torch.equal(found, wanted)
