"""Memory layouts and dtypes of values that only loops see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.program import Layout
from torch import Tensor

from tests.evaluated import scheduled

BATCH, LENGTH, WIDTH = 4, 64, 96
SHAPE, FLAT = (BATCH, LENGTH, WIDTH), (BATCH * LENGTH, WIDTH)


def one_term(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Norms of a sum whose first term is transposed: eager's sums are, too."""
    hidden = x.transpose(1, 2) + y
    for _ in range(3):
        hidden = hidden + (F.layer_norm(hidden, (WIDTH,)).reshape(FLAT) @ w).view(SHAPE)
    return F.layer_norm(hidden, (WIDTH,)).reshape(FLAT) @ w


def several_terms(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    hidden = x.transpose(1, 2)
    for _ in range(3):
        hidden = hidden + (F.layer_norm(hidden, (WIDTH,)).reshape(FLAT) @ w).view(SHAPE) + y
    return F.layer_norm(hidden, (WIDTH,)).reshape(FLAT) @ w


def columns(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Nothing but `y` has its rows in memory: the sums stay as `x` and its products are."""
    hidden = x.transpose(1, 2)
    for _ in range(3):
        hidden = hidden + (w @ hidden.tanh().transpose(1, 2)).transpose(1, 2) * x.transpose(1, 2)
    return w @ hidden.tanh().transpose(1, 2)


def written(fn: Callable[..., Tensor], dtype: torch.dtype, device: str) -> list[Layout]:
    """Layouts of what is made in the size of the hidden states; values are eager's."""
    torch.manual_seed(0)
    sizes = (BATCH, WIDTH, LENGTH), SHAPE, (WIDTH, WIDTH)
    given = [torch.randn(size).to(dtype) / 8 for size in sizes]
    program = scheduled(fn, given, device)
    (found,) = run_program(program, given)
    assert isinstance(found, Tensor)
    near = 3e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(found, fn(*given), rtol=near, atol=near)
    names = {buffer.name for buffer in program.inputs}
    made = [buffer.layout for buffer in program.buffers if buffer.name not in names]
    return [layout for layout in made if layout.shape == SHAPE]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fn", [one_term, several_terms])
def test_rows_that_are_reduced_are_neighbours(
    fn: Callable[..., Tensor], dtype: torch.dtype, device: str
) -> None:
    made = written(fn, dtype, device)
    assert made and all(layout.stride == (LENGTH * WIDTH, WIDTH, 1) for layout in made)
    assert all(layout.dtype == dtype for layout in made)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_value_of_transposed_ones_stays_transposed(device: str) -> None:
    made = written(columns, torch.float32, device)
    assert made and all(layout.stride == (LENGTH * WIDTH, 1, LENGTH) for layout in made)
