"""Tensors that are written part after part: one memory, and loops over the parts alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.ir.loops import Store
from flambeau_inductor.ir.program import Alloc, Program, Reuse, RunLoop
from flambeau_inductor.ir.steps import touched
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import schedule
from torch import Tensor, fx

from tests.facts import Info

Function = Callable[[Tensor, Tensor], Any]
C, K = (4, 16, 8), (4, 8)


def slot(c: Tensor, k: Tensor) -> Any:
    return (torch.select_scatter(c, k, 1, 3),)


def row_of_a_part(c: Tensor, k: Tensor) -> Any:
    return (torch.select_scatter(c, torch.select_scatter(c[1], k[0], 0, 3), 0, 1),)


def element(c: Tensor, k: Tensor) -> Any:
    inner = torch.select_scatter(c[1][2], k[0, 0], 0, 5)
    return (torch.select_scatter(c, torch.select_scatter(c[1], inner, 0, 2), 0, 1),)


def steps_of_a_part(c: Tensor, k: Tensor) -> Any:
    inner = torch.slice_scatter(c[:, 4:12], k[:, None].expand(4, 2, 8), 1, 0, 8, 4)
    return (torch.slice_scatter(c, inner, 1, 4, 12),)


def two(c: Tensor, k: Tensor) -> Any:
    return (torch.select_scatter(torch.select_scatter(c, k, 1, 3), k * 2, 1, 5),)


def read_between(c: Tensor, k: Tensor) -> Any:
    first = torch.select_scatter(c, k, 1, 3)
    seen = first[:, :4].sum()
    return torch.select_scatter(first, k * 2, 1, 5), seen


def grown(c: Tensor, k: Tensor) -> Any:
    return (torch.select_scatter(c, c[:, 3] + k, 1, 3),)


def turned_round(c: Tensor, k: Tensor) -> Any:
    return (torch.select_scatter(c, c[:, 3].flip(0) + k, 1, 3),)


def what_was_there(c: Tensor, k: Tensor) -> Any:
    return (torch.select_scatter(c, c[:, 0] + k, 1, 3),)


IN_PLACE = [slot, row_of_a_part, element, steps_of_a_part, two, read_between, grown]
FUNCTIONS = [*IN_PLACE, turned_round, what_was_there]


def program_of(fn: Function, inputs: list[Tensor], **known: Any) -> Program:
    gm = rewrite(flambeau_prims.lower(fx.symbolic_trace(fn), inputs))
    return schedule(lower_graph(gm, inputs, Info(**known)))


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_an_input_is_written_where_it_is(fn: Function) -> None:
    inputs = [torch.randn(C), torch.randn(K)]
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    given = [x.clone() for x in inputs]
    made = flambeau_inductor.compile(gm, given, Info(updates=((0, 0),)), Options())(list(given))
    torch.testing.assert_close(tuple(made), fn(*inputs))
    assert torch.equal(given[1], inputs[1])
    if fn not in IN_PLACE:  # what one point stores, another one still reads, or seems to
        return
    assert made[0] is given[0]
    program = program_of(fn, inputs, updates=((0, 0),))
    assert sum(isinstance(step, Reuse) for step in program.steps) == 1
    for step in program.steps:
        if isinstance(step, RunLoop) and any(isinstance(i, Store) for i in step.loop.body):
            assert prod(axis.size for axis in step.loop.x) <= prod(C) // 4


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_tensor_that_is_not_updated_is_left_alone(fn: Function) -> None:
    inputs = [torch.randn(C), torch.randn(K)]
    before = [x.clone() for x in inputs]
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    made = flambeau_inductor.compile(gm, inputs)(list(inputs))
    torch.testing.assert_close(tuple(made), fn(*before))
    assert all(map(torch.equal, inputs, before))


def rows_in_turn(c: Tensor, k: Tensor) -> Any:
    y = torch.select_scatter(c * 0, k[0, :1].expand(8), 0, 0)
    for i in range(1, 6):
        y = torch.select_scatter(y, y[i - 1] * 2 + k[1], 0, i)
    return (y,)


def same_row_again(c: Tensor, k: Tensor) -> Any:
    y = torch.select_scatter(c * 0, k[0, :1].expand(8), 0, 0)
    for _ in range(4):
        y = torch.select_scatter(y, y[1].flip(0) + y[0] + k[1], 0, 1)
    return (y,)


def kept_between(c: Tensor, k: Tensor) -> Any:
    first = torch.select_scatter(c * 0, k[0], 0, 0)
    second = torch.select_scatter(first, k[1], 0, 1)
    return first, second, torch.select_scatter(second, k[2], 0, 2)


@pytest.mark.parametrize(
    ("fn", "buffers"), [(rows_in_turn, 1), (same_row_again, None), (kept_between, 3)]
)
def test_tensors_of_a_graph_that_are_written_row_by_row(fn: Function, buffers: int | None) -> None:
    inputs = [torch.randn(40, 8), torch.randn(K)]
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    made = flambeau_inductor.compile(gm, inputs)(list(inputs))
    torch.testing.assert_close(tuple(made), fn(*inputs))
    program = program_of(fn, inputs)
    allocated = sum(isinstance(step, Alloc) for step in program.steps)
    assert buffers is None or allocated == buffers


def test_the_work_grows_as_the_writes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over the rows, unrolled: no step is looked at again for each of the others."""
    module = import_module("flambeau_inductor.schedule.memory.order")
    looked: list[object] = []

    def seen(step: Any) -> Any:
        looked.append(step)
        return touched(step)

    def rows(count: int) -> Function:
        def fn(c: Tensor, k: Tensor) -> Any:
            y = torch.select_scatter(c * 0, k[0, :1].expand(8), 0, 0)
            for i in range(1, count):
                y = torch.select_scatter(y, y[i - 1] * 2 + k[1], 0, i)
            return (y,)

        return fn

    work = []
    for count in (10, 20, 40):
        with monkeypatch.context() as patch:
            patch.setattr(module, "touched", seen)
            looked.clear()
            program = program_of(rows(count), [torch.randn(40, 8), torch.randn(K)])
            work.append(len(looked))
        assert sum(isinstance(step, Alloc) for step in program.steps) == 1
    assert work[2] - work[1] <= 2 * (work[1] - work[0])
