"""Equal numbers have no variance and are their own mean, however many they are and however they
lie; of a mean far above the deviations, and of a row that begins with a number far from the rest,
the variance is eager's; an infinite one that comes last is the mean, in C++ as in eager. Statistics
of numbers whose sum overflows are finite where those of exact sums are."""

from __future__ import annotations

from pathlib import Path

import flambeau_inductor
import flambeau_prims
import numpy as np
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


LARGE = {
    "equal": lambda n: torch.full((n,), 0.9),
    "negative": lambda n: torch.full((n,), -0.51),
    "both signs": lambda n: torch.tensor([0.9, -0.9]).repeat(n)[:n],
    "one": lambda n: torch.eye(n)[3] * 0.9,
    "spread": lambda n: torch.rand(n) / 2 + 0.3,
    "squares near the largest": lambda n: torch.rand(n).double() * LEAST,
    "close together": lambda n: 0.7 + torch.rand(n).double() * LEAST,
}
"""Numbers as shares of a dtype's largest."""
LEAST = 2.0**-66
DOWN = {torch.float32: 2.0**-70, torch.float64: 2.0**-540}


def normalised(x: Tensor) -> tuple[Tensor, ...]:
    rows = torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)
    batch = torch.native_batch_norm(x[None], None, None, None, None, True, 0.1, 1e-5)
    return tuple(made[part] for made in (rows, batch) for part in range(3))


@pytest.mark.parametrize("kernels", ["cpp", "triton"])
@np.errstate(over="ignore", invalid="ignore")  # the interpreter computes in NumPy
def test_statistics_of_large_numbers(kernels: str, tmp_path: Path) -> None:
    if kernels == "triton":
        pytest.importorskip("triton", reason="triton is not installed")
    for dtype, down in DOWN.items():
        for length in (49, 300):
            made = torch.stack([made(length).double() for made in LARGE.values()])
            x = (made * torch.finfo(dtype).max).to(dtype)
            low = flambeau_prims.lower(fx.symbolic_trace(normalised), [x])
            options = Options(kernels=kernels, cache_dir=str(tmp_path), verify=True)
            out, mean, rstd, *batch = flambeau_inductor.compile(low, [x], options=options)([x])
            small, average = torch.var_mean(x.double() * down, 1, correction=0, keepdim=True)
            average, squares = (average / down).to(dtype), small * length / down / down
            variance = squares.to(dtype) / length
            epsilon = torch.finfo(dtype).eps * x.abs().amax(1, keepdim=True)
            assert ((mean - average).abs() <= 2 * epsilon).all()
            expected = torch.rsqrt(variance + 1e-5).to(dtype)
            steady = variance.sqrt() > 64 * epsilon
            steady |= variance == 0
            torch.testing.assert_close(rstd[steady], expected[steady], rtol=1e-2, atol=0.0)
            assert out.isfinite().all()
            torch.testing.assert_close(batch[1:], [mean[:, 0], rstd[:, 0]])
            # the result of the batch overflows with its scale and constant only where eager's does
            finite = normalised(x)[3].isfinite()
            assert finite.all(-1).sum() > 2
            torch.testing.assert_close(batch[0][finite], out[None][finite])
