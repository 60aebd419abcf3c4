"""Equal numbers have no variance and are their own mean, however many they are and however they
lie; of a mean far above the deviations, and of a row that begins with a number far from the rest,
the variance is eager's; an infinite one that comes last is the mean, in C++ as in eager."""

from __future__ import annotations

from pathlib import Path

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from torch import Tensor, fx

LENGTHS = (3, 5, 49, 5000, 17000)
VALUES = torch.tensor([0.1, 0.3, 123.456, -1e-3, 7.7], dtype=torch.float64)
CALLS = {
    "rows": lambda x: torch.var_mean(x, 1),
    "columns": lambda x: torch.var_mean(x.t(), 0),
    "one": lambda x: torch.var_mean(x[2], correction=0),
    "copied": lambda x: torch.std_mean(x * 2, 1),
}


def compiled(x: Tensor, kernels: str, folder: Path) -> list[Tensor]:
    def whole(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(call(x)[part] for call in CALLS.values() for part in (0, 1))

    low = flambeau_prims.lower(fx.symbolic_trace(whole), [x])
    options = Options(kernels=kernels, cache_dir=str(folder), verify=True)
    return list(flambeau_inductor.compile(low, [x], options=options)([x]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernels", ["cpp", "triton"])
def test_equal_numbers_have_no_variance(kernels: str, dtype: torch.dtype, tmp_path: Path) -> None:
    if kernels == "triton":
        pytest.importorskip("triton", reason="triton is not installed")
    for length in LENGTHS if kernels == "cpp" else LENGTHS[1:4:2]:
        x = VALUES.to(dtype)[:, None].expand(5, length).contiguous()
        found = compiled(x, kernels, tmp_path)
        expected = [part for call in CALLS.values() for part in call(x)]
        for got, want in zip(found, expected, strict=True):
            assert torch.equal(got, want), (length, got, want)


@pytest.mark.parametrize("length", [2, 5, 40])
def test_an_infinite_number_that_comes_last_is_the_mean(length: int, tmp_path: Path) -> None:
    x = torch.randn(5, length)
    x[0, -1], x[1, -1], x[2, 0], x[3, -1], x[3, 0] = (torch.inf * s for s in (1, -1, 1, 1, 1))
    found = compiled(x, "cpp", tmp_path)
    expected = [part for call in CALLS.values() for part in call(x)]
    torch.testing.assert_close(found, expected, equal_nan=True)


SPREADS = ((0.0, 1.0), (1e4, 1.0), (1e6, 1.0), (1e4, 1e-3), (-3e5, 1e-2))
"""Means and deviations."""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("outlier", [False, True])
@pytest.mark.parametrize("length", [49, 768, 17000])
def test_spreads_far_from_zero(length: int, outlier: bool, tmp_path: Path) -> None:
    """Not farther from what float64 gives than eager, but for one rounding."""
    for mean, deviation in SPREADS:
        x = torch.randn(5, length) * deviation + mean
        if outlier:
            x[:, 0] = 1e6
        found = compiled(x, "cpp", tmp_path)
        expected = [part for call in CALLS.values() for part in call(x)]
        exact = [part for call in CALLS.values() for part in call(x.double())]
        for got, want, true in zip(found, expected, exact, strict=True):
            error, eager = ((each - true).square().mean().sqrt() for each in (got, want))
            size = true.square().mean().sqrt()
            assert error <= eager + 4e-8 * size, (mean, deviation, got, want)
