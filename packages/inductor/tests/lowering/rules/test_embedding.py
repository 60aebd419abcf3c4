"""Bags of equal lengths become gathers and sums; others stay the library's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import InductorError
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.program import Program
from flambeau_inductor.runtime.operators import ROWS_ADDED
from torch import Tensor

from tests.evaluated import against_eager, scheduled, steps_of


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_bags_are_kernels(mode: str, dtype: torch.dtype) -> None:
    table = torch.randn(10, 6).to(dtype)
    outcome = against_eager(
        lambda table, rows: F.embedding_bag(rows, table, mode=mode),
        table,
        torch.randint(0, 10, (5, 3)),
        tolerance=1e-2 if dtype == torch.bfloat16 else 1e-5,
    )
    assert not outcome.externs and not outcome.fallbacks


def test_weights_of_samples() -> None:
    outcome = against_eager(
        lambda table, rows, shares: F.embedding_bag(
            rows, table, mode="sum", per_sample_weights=shares
        ),
        torch.randn(10, 6),
        torch.randint(0, 10, (5, 3)),
        torch.rand(5, 3),
    )
    assert not outcome.externs


@pytest.mark.parametrize("settings", [{"mode": "max"}, {"mode": "sum", "padding_idx": 1}])
def test_what_sums_do_not_say_is_the_librarys(settings: dict[str, object]) -> None:
    outcome = against_eager(
        lambda table, rows: F.embedding_bag(rows, table, **settings),
        torch.randn(10, 6),
        torch.randint(0, 10, (5, 3)),
    )
    assert outcome.externs


def test_bags_that_only_the_data_know_are_the_librarys() -> None:
    outcome = against_eager(
        lambda table, rows, begins: F.embedding_bag(rows, table, begins),
        torch.randn(10, 6),
        torch.randint(0, 10, (8,)),
        torch.tensor([0, 3, 3]),
    )
    assert outcome.externs


def test_a_position_outside_the_table_is_an_error() -> None:
    table, rows = torch.randn(10, 6), torch.tensor([[1, 2], [3, 10]])
    with pytest.raises(RuntimeError, match="found idx to be"):
        against_eager(lambda t, r: F.embedding_bag(r, t, mode="sum"), table, rows)


ROWS, COLUMNS, BAGS, EACH = 30, 40, 7, 3
BACKWARD = torch.ops.aten._embedding_bag_dense_backward.default


def gradient_of_bags(
    mode: int, dtype: torch.dtype, shares: bool = False, padding: int = -1, fixed: bool = False
) -> tuple[Program, Tensor, Tensor]:
    """The program on a GPU, what it gives by its meaning, and what the library gives in float64."""
    real = [
        torch.randn(BAGS, COLUMNS).to(dtype),
        torch.randint(0, ROWS, (BAGS * EACH,)),
        torch.arange(BAGS * EACH) // EACH,
        torch.full((BAGS,), EACH),
        torch.randint(0, ROWS, (BAGS, COLUMNS)),
        torch.rand(BAGS * EACH).to(dtype),
    ]

    def of(grad: Tensor, at: Tensor, bag: Tensor, sizes: Tensor, top: Tensor, w: Tensor) -> Tensor:
        own = w if shares else None
        return BACKWARD(grad, at, bag, sizes, top, ROWS, False, mode, own, padding)

    program = scheduled(of, real, "cuda", deterministic=fixed)
    (found,) = run_program(program, real)
    assert isinstance(found, Tensor)
    return program, found, of(*(t.double() if t.is_floating_point() else t for t in real))


@pytest.mark.parametrize(("mode", "shares"), [(0, False), (1, False), (0, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_bags_are_added_on_a_gpu(mode: int, dtype: torch.dtype, shares: bool) -> None:
    program, found, exact = gradient_of_bags(mode, dtype, shares)
    in_order = [ROWS_ADDED] if dtype == torch.bfloat16 else []
    assert [step for step in steps_of(program) if step != "loop"] == in_order
    assert found.dtype == dtype
    rounding = 2**-8 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=1e-6)


@pytest.mark.parametrize("settings", [{"mode": 2}, {"mode": 0, "padding": 1}])
def test_other_gradients_of_bags_are_the_librarys(settings: dict[str, int]) -> None:
    program, found, exact = gradient_of_bags(dtype=torch.float32, **settings)
    assert str(BACKWARD) in steps_of(program)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6)


def test_gradients_of_bags_in_a_fixed_order_are_refused_on_a_gpu() -> None:
    """Neither the library's kernels nor ours add in one."""
    with pytest.raises(InductorError, match="adds in the order in which threads arrive"):
        gradient_of_bags(0, torch.float32, fixed=True)
