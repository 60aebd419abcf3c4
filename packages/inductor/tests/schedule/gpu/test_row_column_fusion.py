"""Sums down columns taken into the loop over the rows: the same results, each row read once."""

from __future__ import annotations

from dataclasses import replace

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import InductorError, Options
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Load, Loop, Reduce, Store
from flambeau_inductor.ir.program import RunLoop
from flambeau_inductor.schedule.gpu import row_column_fusion
from torch import Tensor, fx

from tests.evaluated import Outcome, against_eager
from tests.schedule.pairs import APART, CASES, COLUMNS, JOINED, ROWS, norm_backward


def _totals(done: Outcome) -> list[Loop]:
    return [loop for loop in done.loops if _total(loop)]


def _total(loop: Loop) -> bool:
    return any(isinstance(i, Store) and i.mode == "total" for i in loop.body)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_two_loops(name: str) -> None:
    inputs = (*(torch.randn(ROWS, COLUMNS) for _ in "ab"), torch.randn(COLUMNS))
    done = against_eager(CASES[name], *inputs, tolerance=1e-4, limits=JOINED)
    assert len(_totals(done)) == 1
    apart = against_eager(CASES[name], *inputs, tolerance=1e-4, limits=APART)
    assert not _totals(apart)


@pytest.mark.parametrize("columns", [COLUMNS, 600])
def test_the_last_part_has_fewer_rows(columns: int) -> None:
    inputs = (*(torch.randn(47, columns) for _ in "ab"), torch.randn(columns))
    (whole,) = _totals(against_eager(norm_backward, *inputs, tolerance=1e-3, limits=JOINED))
    parts, own = (axis.size for axis in whole.x)
    assert whole.points == 47 and isinstance(parts, int) and isinstance(own, int)
    assert (parts - 1) * own < 47 < parts * own


def test_fewer_rows_than_programs_stay_apart() -> None:
    inputs = (*(torch.randn(3, 600) for _ in "ab"), torch.randn(600))
    assert not _totals(against_eager(norm_backward, *inputs, tolerance=1e-3, limits=JOINED))


def test_rows_that_wait_for_the_sums_stay_apart() -> None:
    def centred(x: Tensor) -> tuple[Tensor, ...]:
        total = x.sum(0)
        return total, (x - total) * (x - total).sum(-1, keepdim=True)

    done = against_eager(centred, torch.randn(ROWS, COLUMNS), tolerance=1e-3, limits=JOINED)
    assert not _totals(done)


def test_a_step_in_between_that_reads_the_rows_stays_after_them() -> None:
    def between(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        scaled = x * torch.sigmoid(x).sum(-1, keepdim=True)
        product = scaled @ w
        return product, (scaled * product).sum(0)

    inputs = (torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, COLUMNS))
    done = against_eager(between, *inputs, tolerance=1e-3, limits=JOINED)
    assert not _totals(done)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", [COLUMNS, 2500])
def test_rows_too_long_for_a_program_are_reduced_first(name: str, columns: int) -> None:
    inputs = (*(torch.randn(ROWS, columns) for _ in "ab"), torch.randn(columns))
    limits = replace(JOINED, most_across=COLUMNS // 2 - 1, most_held=COLUMNS - 1)
    done = against_eager(CASES[name], *inputs, tolerance=1e-3, limits=limits)
    (whole,) = _totals(done)
    assert not any(isinstance(i, Reduce) for i in whole.body)
    assert any(isinstance(i, Store) and i.mode == "set" for i in whole.body)
    first = next(loop for loop in done.loops if loop.name == f"{whole.name}_sums")
    along = {axis.var for axis in first.r}
    assert not any(i.index.vars & along for i in first.body if isinstance(i, Store))


def _softmax_and_sums(x: Tensor) -> tuple[Tensor, ...]:
    return x.softmax(-1), x.sum(0)


def test_rows_beside_which_little_lives_are_held_whole() -> None:
    limits = replace(JOINED, most_across=COLUMNS - 1)
    x = torch.randn(ROWS, COLUMNS)
    (whole,) = _totals(against_eager(_softmax_and_sums, x, limits=limits))
    assert any(isinstance(i, Reduce) for i in whole.body)


def test_long_rows_that_are_read_once_stay_apart() -> None:
    limits = replace(JOINED, most_across=COLUMNS // 2 - 1)
    x = torch.randn(ROWS, COLUMNS)
    assert not _totals(against_eager(_softmax_and_sums, x, limits=limits))
    read_twice = replace(limits, most_held=COLUMNS - 1)
    assert _totals(against_eager(_softmax_and_sums, x, limits=read_twice))


def test_three_programs_for_two_where_registers_are_free() -> None:
    x, grad, w = torch.randn(900, 600), torch.randn(900, 600), torch.randn(600)
    x, grad, w = x.bfloat16(), grad.bfloat16(), w.bfloat16()

    def sums(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return tuple(each.bfloat16() for each in norm_backward(a.float(), b.float(), c.float()))

    (light,) = _totals(against_eager(_softmax_and_sums, x, tolerance=3e-2, limits=JOINED))
    (heavy,) = _totals(against_eager(sums, grad, x, w, tolerance=1.0, limits=JOINED))
    assert (light.x[0].size, heavy.x[0].size) == (48, 32)


def test_what_the_sums_store_and_the_rows_reduce_is_not_read_too_early() -> None:
    def both(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        gate = torch.sigmoid(x) * x
        total = (gate * 3 + w).sum(0)
        return gate, total, gate - gate.square().sum(-1, keepdim=True) * w

    limits = replace(JOINED, most_across=COLUMNS // 2 - 1, most_held=COLUMNS - 1)
    inputs = torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)
    against_eager(both, *inputs, tolerance=1e-3, limits=limits)


def test_cpp_refuses_a_joined_loop_by_name() -> None:
    inputs = [*(torch.randn(ROWS, COLUMNS) for _ in "ab"), torch.randn(COLUMNS)]
    gm = flambeau_prims.lower(fx.symbolic_trace(norm_backward), inputs)
    with pytest.raises(InductorError, match="also sums their columns"):
        flambeau_inductor.compile(gm, inputs, options=Options(limits=JOINED))


def _copy(source: str, target: str) -> RunLoop:
    body = (Load(source, Var("x0"), torch.float32), Store(target, Var("x0"), 0))
    return RunLoop(Loop(f"{source}_{target}", (Axis("x0", 4),), (), body))


@pytest.mark.parametrize("other", ["ab", "bc", "ca", "ac", "cb"])
def test_steps_that_touch_one_buffer_share_something(other: str) -> None:
    assert not row_column_fusion._share_nothing(_copy("a", "b"), _copy(*other))
    assert row_column_fusion._share_nothing(_copy("a", "b"), _copy("c", "d"))
