"""Memory for vectors that matrices are multiplied by."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Load, Reduce
from flambeau_inductor.ir.steps import loops_of
from flambeau_inductor.scheduling_limits import Limits
from torch import Tensor

from tests.evaluated import scheduled

LIMITS = Limits()
WIDTH = 32


def norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w).to(x.dtype)


def affine(x: Tensor, w: Tensor) -> Tensor:
    """Too little to be worth memory."""
    return (x * w).to(x.dtype)


@pytest.mark.parametrize("products", [1, 3])
@pytest.mark.parametrize(
    ("vector", "rows", "device", "stored"),
    [
        (norm, LIMITS.vector_rows, "cuda", True),
        (norm, LIMITS.vector_rows, "cpu", False),
        (norm, LIMITS.vector_rows - 1, "cuda", False),
        (affine, LIMITS.vector_rows, "cuda", False),
    ],
)
def test_a_vector_is_computed_once_for_many_rows_of_a_matrix(
    vector: Callable[[Tensor, Tensor], Tensor], rows: int, device: str, stored: bool, products: int
) -> None:
    def fn(x: Tensor, w: Tensor, matrix: Tensor) -> Tensor:
        made = vector(x, w)
        return torch.cat([(made.float() * (matrix.float() + k)).sum(-1) for k in range(products)])

    torch.manual_seed(0)
    shapes = (WIDTH,), (WIDTH,), (rows, WIDTH)
    given = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    program = scheduled(fn, given, device)
    (made,) = run_program(program, given)
    assert isinstance(made, Tensor)
    torch.testing.assert_close(made, fn(*given))
    weight, matrix = program.inputs[1].name, program.inputs[2].name
    reading = [
        {i.buffer for i in loop.body if isinstance(i, Load)}
        for loop in loops_of(program)
        if any(isinstance(i, Reduce) for i in loop.body)
    ]
    multiplying = [buffers for buffers in reading if matrix in buffers]
    assert multiplying
    assert all((weight not in buffers) == stored for buffers in multiplying)
