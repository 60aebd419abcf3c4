"""Inputs that a program writes where they are, and those that it must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.ir.program import Alloc, Reuse, RunLoop
from flambeau_inductor.ir.verify import verify_program
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from torch import Tensor, fx

from tests.facts import Info


def momentum(p: Tensor, m: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    new = m * 0.9 + g
    return p - new * 0.1, new


def cache(kept: Tensor, rows: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    return (kept.index_copy(0, at, rows),)


def turned(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return (q + p.t(),)


def normed(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return (p / p.sum(-1, keepdim=True) + q,)


def read_later(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    new = (p + q).sum(0)
    return p + q, (p.t() * new[0]).sum(0)


def twice(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    new = p + q
    return new, new


def wider(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return ((p + q).t().contiguous(),)


def looked_up(p: Tensor, q: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    return p + 1, q[at]


def r(*shape: int) -> Tensor:
    return torch.randn(shape)


def compiled(
    fn: Callable[..., Any], inputs: list[Tensor], updates: tuple[tuple[int, int], ...]
) -> tuple[list[Tensor], Any]:
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    given = [t.clone() for t in inputs]
    made = flambeau_inductor.compile(gm, given, Info(updates=updates), Options())
    return given, made(list(given))


CASES: list[tuple[Callable[..., Any], list[Tensor], tuple[tuple[int, int], ...], set[int]]] = [
    (momentum, [r(3, 5), r(3, 5), r(3, 5)], ((0, 0), (1, 1)), {0, 1}),
    (turned, [r(4, 4), r(4, 4)], ((0, 0),), set()),
    (turned, [r(4, 4), r(4, 4)], ((0, 1),), {0}),
    (normed, [r(4, 4).exp(), r(4, 4)], ((0, 0),), set()),  # no sum is next to zero
    (read_later, [r(4, 4), r(4, 4)], ((0, 0),), set()),
    (twice, [r(4), r(4)], ((0, 0), (1, 1)), set()),
    (wider, [r(3, 4), r(3, 4)], ((0, 0),), set()),
    (momentum, [r(3, 5).t(), r(3, 5).t(), r(3, 5).t()], ((0, 0), (1, 1)), {0, 1}),
    (momentum, [r(3, 5), r(3, 5).double(), r(3, 5)], ((0, 0), (1, 1)), {1}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}{len(case[3])}")
def test_what_is_written_in_place_is_that_input_and_nothing_else_is(case: Any) -> None:
    fn, inputs, updates, wanted = case
    expected = fn(*inputs)
    given, outputs = compiled(fn, inputs, updates)
    places = dict(updates)
    here = {k for k, out in enumerate(outputs) if k in places and out is given[places[k]]}
    assert here == wanted
    for out, want in zip(outputs, expected, strict=True):
        torch.testing.assert_close(out, want.to(out.dtype))
    changed = {places[k] for k in here}
    for position, (after, before) in enumerate(zip(given, inputs, strict=True)):
        assert position in changed or torch.equal(after, before)


def test_rows_of_a_cache_are_written_and_the_others_are_not_copied() -> None:
    inputs = [r(8, 4), r(2, 4), torch.tensor([1, 6])]
    gm = flambeau_prims.lower(fx.symbolic_trace(cache), inputs)
    apart, here = (
        [type(step) for step in schedule(lower_graph(gm, inputs, Info(updates=updates))).steps]
        for updates in ((), ((0, 0),))
    )
    assert (apart.count(RunLoop), apart.count(Alloc)) == (2, 1)
    assert (here.count(RunLoop), here.count(Alloc), here.count(Reuse)) == (1, 0, 1)
    given, outputs = compiled(cache, inputs, ((0, 0),))
    assert outputs[0] is given[0]
    torch.testing.assert_close(given[0], cache(*inputs)[0])
    given[2][0] = 9
    made = flambeau_inductor.compile(gm, inputs, Info(updates=((0, 0),)))
    before = given[0].clone()
    with pytest.raises(IndexError):
        made(list(given))
    assert torch.equal(given[0], before)


def test_nothing_is_changed_by_a_program_that_may_still_fail() -> None:
    inputs = [r(4), r(4), torch.tensor([9])]
    gm = flambeau_prims.lower(fx.symbolic_trace(looked_up), inputs)
    program = schedule(lower_graph(gm, inputs, Info(updates=((0, 0),))))
    own = [t.clone() for t in inputs]
    made = flambeau_inductor.compile(gm, own, Info(updates=((0, 0),)))
    with pytest.raises(IndexError):
        made(list(own))
    assert torch.equal(own[0], inputs[0])
    assert not any(isinstance(s, Reuse) and s.old == "in0" for s in program.steps)


@pytest.mark.parametrize("fn", [lambda p: (p,), lambda p: (p.clone(),)])
def test_a_value_that_is_there_already_takes_no_step(fn: Callable[..., Any]) -> None:
    inputs = [r(3, 4)]
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    program = schedule(lower_graph(gm, inputs, Info(updates=((0, 0),))))
    verify_program(program)
    assert not any(isinstance(step, RunLoop | Alloc) for step in program.steps)
    given, outputs = compiled(fn, inputs, ((0, 0),))
    assert outputs[0] is given[0] and torch.equal(given[0], inputs[0])
