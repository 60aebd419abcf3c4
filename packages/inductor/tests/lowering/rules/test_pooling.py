"""Small windows are written out; values and positions are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.program import Extern, RunLoop
from torch import Tensor

from tests.evaluated import against_eager, scheduled

aten = torch.ops.aten

GEOMETRIES = {
    "tiles": (2, 2, 0, False),
    "overlapping": (3, 2, 1, False),
    "hanging over": (3, 2, 1, True),
    "oblong": ((2, 3), (1, 2), (1, 0), False),
    "gaps": (2, 3, 0, True),
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("last", [False, True])
def test_maxima_and_their_positions(geometry: str, last: bool) -> None:
    x = torch.randint(-3, 3, (2, 3, 7, 9)).float()  # with ties
    x[0, 1, 2, 3:5] = float("nan")
    x[1, 0] = -float("inf")
    x = x.to(memory_format=torch.channels_last) if last else x
    kernel, stride, padding, ceil = GEOMETRIES[geometry]
    outcome = against_eager(
        lambda x: F.max_pool2d(
            torch.relu(x) - 1, kernel, stride, padding, 1, ceil, return_indices=True
        ),
        x,
    )
    assert not outcome.externs and not outcome.fallbacks


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_maxima_of_every_type(dtype: torch.dtype) -> None:
    x = torch.randint(0, 100, (3, 6, 6)).to(dtype)
    outcome = against_eager(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    assert not outcome.externs


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    ("with_padding", "divisor"), [(False, None), (False, 5), (True, None), (True, 5)]
)
def test_means(geometry: str, with_padding: bool, divisor: int | None) -> None:
    kernel, stride, padding, ceil = GEOMETRIES[geometry]
    outcome = against_eager(
        lambda x: F.avg_pool2d(x * 2, kernel, stride, padding, ceil, with_padding, divisor),
        torch.randn(2, 3, 7, 9),
    )
    assert not outcome.externs and not outcome.fallbacks


def test_means_of_half_precision_round_once() -> None:
    x = torch.randn(2, 3, 8, 8).bfloat16()
    outcome = against_eager(lambda x: F.avg_pool2d(x, 4), x, tolerance=0.0)
    assert not outcome.externs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 6),
        lambda x: F.max_pool2d(x, 2, dilation=2),
        lambda x: F.avg_pool2d(x, 6),
    ],
)
def test_large_and_dilated_windows_are_the_librarys(function: object) -> None:
    assert callable(function)
    outcome = against_eager(function, torch.randn(1, 2, 12, 12))
    assert outcome.externs and not outcome.fallbacks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("geometry", [*GEOMETRIES.values(), (3, 1, 1, False), ((5, 4), 2, 2, True)])
def test_derivatives_of_maxima_on_a_gpu_are_gathered(geometry: Any, dtype: torch.dtype) -> None:
    """By the meaning of its loops, without a GPU."""
    (kernel, stride, padding), ceil = map(_pair, geometry[:3]), geometry[3]
    x = torch.randint(-3, 3, (2, 3, 7, 9)).to(dtype)
    grad, indices = F.max_pool2d(x, *geometry[:3], ceil_mode=ceil, return_indices=True)

    def fn(grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
        return aten.max_pool2d_with_indices_backward.default(
            grad, x, kernel, stride, padding, [1, 1], ceil, indices
        )

    real = [torch.randn_like(grad), x, indices]
    real[0][0, 0] = -0.0
    program = scheduled(fn, real, "cuda")
    assert [type(step) for step in program.steps if isinstance(step, RunLoop | Extern)] == [RunLoop]
    (got,) = run_program(program, real)
    want = fn(real[0].double(), x.double(), indices).to(dtype)
    torch.testing.assert_close(got, want, rtol=0, atol=0 if dtype == torch.float64 else 1e-2)
    assert torch.equal(got.signbit(), want.signbit())


def _pair(size: int | tuple[int, int]) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)
