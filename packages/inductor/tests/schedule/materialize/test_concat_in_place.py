"""Concatenations whose pieces loops write where they go, and those that are left to the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.ir.loops import Load, Point, Store
from flambeau_inductor.ir.program import Alloc, Extern, Program, Reuse, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import Limits, schedule
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.evaluated import against_eager
from tests.schedule.memory.test_inplace_updates import compiled

MANY = 10


def r(*shape: int) -> Tensor:
    return torch.randn(shape)


def several(x: Tensor) -> Tensor:
    pieces = [x.select(0, k).narrow(1, k, MANY + 2 - k) for k in range(MANY)]
    return torch.cat([piece * k + 1 for k, piece in enumerate(pieces)], 1)


def three(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.cat([a * 2 + 1, b * 3, c - 1], 1)


def numbers(x: Tensor) -> Tensor:
    return torch.cat([(1 - 0.9 ** x[k]).reshape(1) for k in range(100)])


def turned(x: Tensor) -> Tensor:
    return torch.cat([x[k].exp().t() for k in range(MANY)], 1)


def repeated(x: Tensor) -> Tensor:
    return torch.cat([x.sin()] * MANY, 0)


def filled(x: Tensor) -> Tensor:
    return torch.cat([x.new_zeros(3, 4), *[x * k for k in range(MANY)], x.new_ones(2, 4)])


def reduced(x: Tensor) -> Tensor:
    return torch.cat([x.sum(1), *[(x * k).mean(1) for k in range(MANY)]])


def scanned(x: Tensor) -> Tensor:
    return torch.cat([x.cumsum(1), *[x * k for k in range(MANY)]])


def also_returned(x: Tensor) -> tuple[Tensor, ...]:
    pieces = [x * k for k in range(MANY)]
    return torch.cat(pieces, 1), pieces[3], pieces[4] + 1


def read_again(x: Tensor) -> Tensor:
    whole = torch.cat([x + k for k in range(MANY)], 1)
    return whole.softmax(1) + whole


def twice(x: Tensor) -> Tensor:
    inner = torch.cat([x + k for k in range(MANY)], 1)
    return torch.cat([inner, *[x * k for k in range(MANY)]], 1)


CASES: list[tuple[Callable[..., Any], list[Tensor]]] = [
    (several, [r(MANY, 3, MANY + 2)]),
    (numbers, [r(100)]),
    (turned, [r(MANY, 2, 3)]),
    (repeated, [r(3, 4)]),
    (filled, [r(3, 4)]),
    (reduced, [r(5, 8)]),
    (also_returned, [r(3, 4)]),
    (read_again, [r(3, 4)]),
]


@pytest.mark.parametrize(("fn", "inputs"), CASES, ids=lambda c: getattr(c, "__name__", ""))
@pytest.mark.parametrize("limits", [Limits(), Limits(fusion=False)], ids=["fused", "apart"])
def test_many_pieces_are_written_by_loops(
    fn: Callable[..., Any], inputs: list[Tensor], limits: Limits
) -> None:
    outcome = against_eager(fn, *inputs, limits=limits)
    assert outcome.externs == []


@pytest.mark.parametrize(("fn", "inputs"), CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_kernels_write_them_where_they_go(fn: Callable[..., Any], inputs: list[Tensor]) -> None:
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    results = flambeau_inductor.compile(gm, inputs, None, Options(verify=True))(list(inputs))
    wanted = fn(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(results, wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_numbers_take_one_allocation_and_share_loops() -> None:
    outcome = against_eager(numbers, r(100))
    steps = outcome.program.steps
    assert sum(isinstance(step, Alloc | Reuse) for step in steps) == 1
    assert len(outcome.loops) == 1


def test_what_no_loop_computes_is_copied_into_slices() -> None:
    def function(x: Tensor) -> Tensor:
        pieces = [x[k] * 2 for k in range(MANY)]
        return torch.cat([x[0], *pieces, x[0] @ x[1], x[1]], 1)

    outcome = against_eager(function, r(MANY, 200, 200), tolerance=1e-4)
    first, last = [s for s in outcome.program.steps if isinstance(s, Extern)][1:]
    assert first.target == last.target == "aten.cat.out"
    places = [call.into[0].layout for call in (first, last)]
    assert [place and (place.shape, place.offset) for place in places] == [
        ((200, 200), 0),
        ((200, 400), 11 * 200),
    ]


def test_the_library_copies_what_only_it_computes_or_others_compute_in_turn() -> None:
    given = against_eager(lambda x: torch.cat([x[k] for k in range(MANY)]), r(MANY, 3))
    assert given.externs == ["aten.cat.out"] and not given.loops

    def in_turn(x: Tensor) -> Tensor:
        return torch.cat([part for k in range(MANY) for part in (x[k] * 2, x[k, :, 1:])], 1)

    outcome = against_eager(in_turn, r(MANY, 80, 80))
    assert outcome.externs == ["aten.cat.out"]

    def parts(x: Tensor) -> Tensor:
        y = x.tanh() * 2
        return torch.cat([y[k] for k in range(MANY)])

    outcome = against_eager(parts, r(MANY, 3))
    assert (len(outcome.loops), outcome.externs) == (1, ["aten.cat.out"])


def test_elements_in_an_order_are_computed_once() -> None:
    outcome = against_eager(scanned, r(3, 4))
    assert len([i for loop in outcome.loops for i in loop.body if type(i).__name__ == "Scan"]) == 1
    against_eager(twice, r(3, 4))


def asks(program: Program) -> int:
    """How often loops ask which piece an element is of."""
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    masked = [i for loop in loops for i in loop.body if isinstance(i, Load) and i.mask is not None]
    compared = [
        i for loop in loops for i in loop.body if isinstance(i, Point) and i.op in ("lt", "ge")
    ]
    return len(masked) + len(compared)


FEW: list[tuple[Callable[..., Any], list[Tensor], bool]] = [
    (three, [r(4, 100), r(4, 37), r(4, 3)], False),
    (lambda a, b: torch.cat([a, b], -1), [r(4, 3), r(4, 5)], False),
    (lambda a, b: (torch.cat([a, b * 2], -1).t(),), [r(4, 3), r(4, 5)], False),
    (lambda a, b, w: torch.cat([a * 2, b], 1) @ w, [r(4, 3), r(4, 5), r(8, 2)], False),
    (lambda a, b: torch.cat([a, b * 2]).amax(0), [r(3, 4), r(5, 4)], True),
    (lambda a, b: (torch.cat([a, b]), torch.cat([b, a * 2])), [r(3, 4), r(5, 4)], False),
    (lambda a, b: torch.cat([torch.cat([a, b]), a * 2]), [r(3, 4), r(5, 4)], True),
]


@pytest.mark.parametrize(("fn", "inputs", "chosen"), FEW)
def test_a_few_pieces_are_chosen_from_only_where_a_loop_reads_them(
    fn: Callable[..., Any], inputs: list[Tensor], chosen: bool
) -> None:
    outcome = against_eager(fn, *inputs)
    assert "aten.cat.out" not in outcome.externs
    assert bool(asks(outcome.program)) == chosen


def test_a_result_that_a_loop_reads_too_is_chosen_once() -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        whole = torch.cat([a, b * 2])
        return whole, whole + 1

    outcome = against_eager(function, r(3, 4), r(5, 4))
    assert len(outcome.loops) == 1 and asks(outcome.program)


READ: list[tuple[Callable[..., Any], list[Tensor], bool]] = [
    (lambda a, b: torch.cat([a, b], -1).sum(-1), [r(600, 20), r(600, 3)], False),
    (lambda a, b: torch.cat([a, b * 2], -1).abs(), [r(600, 20), r(600, 3)], False),
    (lambda a, b: torch.cat([a, b, a], -1).softmax(-1), [r(600, 16), r(600, 32)], False),
    (lambda a, b: torch.cat([a, b * 2], -1).abs(), [r(600, 16), r(600, 32)], True),
    (lambda a, b: torch.cat([a, b]).abs(), [r(600, 20), r(300, 20)], True),
    (lambda a, b: torch.cat([a, b], -1).abs(), [r(60, 20), r(60, 3)], True),
]


@pytest.mark.parametrize(("fn", "inputs", "chosen"), READ)
def test_rows_of_parts_of_vectors_are_put_side_by_side_before_they_are_read(
    fn: Callable[..., Any], inputs: list[Tensor], chosen: bool
) -> None:
    outcome = against_eager(fn, *inputs, tolerance=1e-4)
    assert bool(asks(outcome.program)) == chosen
    assert outcome.externs == []


def test_what_is_put_side_by_side_may_be_a_piece_itself() -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        inner = torch.cat([a, b * 2, a], 1)
        return torch.cat([inner, b, inner], 1), inner

    outcome = against_eager(function, r(600, 20), r(600, 3))
    assert not asks(outcome.program)


def test_parts_that_are_read_apart_are_not_put_side_by_side() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        whole = torch.cat([a, b], 1)
        return whole[:, :20].sin() + whole[:, 20:40]

    outcome = against_eager(function, r(600, 20), r(600, 20))
    assert len(outcome.loops) == 1 and not asks(outcome.program)


def test_the_library_copies_long_pieces() -> None:
    long, short = r(600, 200), r(600, 3)
    outcome = against_eager(lambda a, b: torch.cat([a, b], 1), long, short)
    assert outcome.externs == ["aten.cat.out"] and len(outcome.loops) == 1
    (call,) = [step for step in outcome.program.steps if isinstance(step, Extern)]
    place = call.into[0].layout
    assert place is not None and (place.shape, place.stride) == ((600, 200), (203, 1))


def test_inputs_are_not_overwritten_while_pieces_are_read() -> None:
    def rolled(kept: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([row * 2, kept[:-1]]),)

    def scaled(kept: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([kept[:4] * 2, row * 3]),)

    inputs = [r(5, 3), r(1, 3)]
    for fn, here in ((rolled, False), (scaled, True)):
        given, outputs = compiled(fn, inputs, ((0, 0),))
        torch.testing.assert_close(outputs[0], fn(*inputs)[0])
        assert (outputs[0] is given[0]) == here


def program_on_a_gpu(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Program:
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(shape, device="cuda") for shape in shapes]
        gm = rewrite(flambeau_prims.lower(fx.symbolic_trace(fn), inputs))
        return schedule(lower_graph(gm, inputs))


def test_on_a_gpu_a_few_pieces_are_one_launch_unless_rows_are_reduced() -> None:
    one = program_on_a_gpu(three, (80, 80), (80, 70), (80, 60))
    loops = [step.loop for step in one.steps if isinstance(step, RunLoop)]
    assert len(loops) == 1 and asks(one)

    def pooled(x: Tensor) -> Tensor:
        return torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)

    rows = program_on_a_gpu(pooled, (16, 64, 28, 28))
    (loop,) = [step.loop for step in rows.steps if isinstance(step, RunLoop)]
    assert sum(isinstance(i, Store) for i in loop.body) == 2 and not asks(rows)
    many = program_on_a_gpu(several, (MANY, 1000, MANY + 2))
    assert sum(isinstance(step, RunLoop) for step in many.steps) == MANY
    assert not any(isinstance(step, Extern) for step in many.steps)
