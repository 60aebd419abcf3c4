"""Loops that run behind the draws they read: eager's masks, and eager's generator after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import CompiledGraph, Options
from flambeau_inductor.runtime.cpu.random import KernelBernoulli, bernoulli, run_after_draws
from torch import fx

DRAW = torch.ops.aten.bernoulli.p
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def generator_as_it_was() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def compiled_of(function: Function, inputs: Sequence[torch.Tensor]) -> CompiledGraph:
    gm = flambeau_prims.lower(fx.symbolic_trace(function), list(inputs))
    return flambeau_inductor.compile(gm, list(inputs), options=Options(verify=True))


def wrapper(compiled: CompiledGraph) -> str:
    return str(compiled.report.sources["wrapper.py"])


def held_to_eager(compiled: CompiledGraph, function: Function, *inputs: torch.Tensor) -> None:
    """Results and states, for calls that begin at different words of a state."""
    for before in (0, 1, 311, 623):
        after = []
        for call in (function, lambda *given: compiled(list(given))):
            torch.manual_seed(before)
            torch.rand(before)
            made = call(*inputs)
            made = made if isinstance(made, list | tuple) else (made,)
            again = call(*inputs)
            again = again if isinstance(again, list | tuple) else (again,)
            after.append((*made, *again, torch.rand(3), torch.get_rng_state()))
        for ours, theirs in zip(*after, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * (DRAW(x, 0.9) / 0.9) + y


def normalised(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = x * (DRAW(x, 0.7) / 0.7) + y
    return kept - kept.mean(-1, keepdim=True)


def with_its_mask(x: torch.Tensor, y: torch.Tensor) -> Any:
    mask = DRAW(x, 0.4)
    return x * mask + y, mask != 0


def broadcast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y[0]) * DRAW(x, 0.5)


PROGRAMS = (dropped, normalised, with_its_mask, broadcast)
SHAPES = ((1, 1024), (3, 1235), (37, 61), (2, 40_001), (700, 160), (131, 1024))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_results_and_states_are_eagers(program: Function) -> None:
    for shape in SHAPES:
        x, y = torch.randn(shape), torch.randn(shape)
        compiled = compiled_of(program, (x, y))
        # threads share out long rows where there are few
        split = program is normalised and shape[0] <= 2
        assert ("run_after_draws(" in wrapper(compiled)) != split, shape
        held_to_eager(compiled, program, x, y)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_threads_share_one_stream(threads: int) -> None:
    x, y = torch.randn(513, 257), torch.randn(513, 257)
    compiled = compiled_of(with_its_mask, (x, y))
    as_they_were = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        held_to_eager(compiled, with_its_mask, x, y)
    finally:
        torch.set_num_threads(as_they_were)


@pytest.mark.parametrize("p", [0.0, 1e-4, 1.0])
def test_all_and_nothing(p: float) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * DRAW(x, p)

    x = torch.randn(70, 1000)
    held_to_eager(compiled_of(program, (x,)), program, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    x, y = torch.randn(90, 300).to(dtype), torch.randn(90, 300).to(dtype)
    compiled = compiled_of(dropped, (x, y))
    assert "run_after_draws(" in wrapper(compiled)
    held_to_eager(compiled, dropped, x, y)


def test_draws_stay_in_order() -> None:
    """Of two masks that one loop reads the second is drawn beside it, after the first."""

    def program(x: torch.Tensor) -> torch.Tensor:
        one = DRAW(x, 0.5)
        other = DRAW(x, 0.25)
        return x * one + other

    x = torch.randn(100, 200)
    compiled = compiled_of(program, (x,))
    assert wrapper(compiled).count("= drawn(") + wrapper(compiled).count("laid_out(drawn(") == 1
    assert wrapper(compiled).count("run_after_draws(") == 1
    held_to_eager(compiled, program, x)


def test_another_draw_in_between() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        mask = DRAW(x, 0.5)
        noise = torch.ops.aten.rand_like.default(w)
        return x * mask, noise

    x, w = torch.randn(64, 64), torch.randn(5)
    held_to_eager(compiled_of(program, (x, w)), program, x, w)


def test_a_mask_in_another_order_than_the_loop() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return DRAW(x, 0.5).t() * y

    x, y = torch.randn(64, 80), torch.randn(80, 64)
    held_to_eager(compiled_of(program, (x, y)), program, x, y)


def test_a_part_of_a_mask() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return DRAW(x, 0.5)[10:] * y

    x, y = torch.randn(64, 80), torch.randn(54, 80)
    held_to_eager(compiled_of(program, (x, y)), program, x, y)


def test_torch_draws_where_it_draws_otherwise() -> None:
    """The plain kernel is given the mask, in its place."""
    seen: list[tuple[int, ...]] = []

    def kernel(*at: int) -> None:
        seen.append(at)

    def refused(*arguments: Any) -> None:
        raise AssertionError("the draws are not its own")

    call = run_after_draws(bernoulli, kernel, refused, 1)
    torch.manual_seed(2)
    mask = call((40, 50), (50, 1), 0.3, True, 11, 22)
    torch.manual_seed(2)
    assert mask is not None and torch.equal(mask, bernoulli((40, 50), (50, 1), 0.3))
    assert seen == [(11, mask.data_ptr(), 22)]
    assert call((40, 50), (50, 1), 0.3, False, 11, 22) is None


def test_a_few_draws_are_torchs() -> None:
    calls: list[str] = []
    drawn = KernelBernoulli(lambda *arguments: calls.append("draws"))
    call = run_after_draws(
        drawn, lambda *at: calls.append("plain"), lambda *at: calls.append("behind"), 0
    )
    assert call((10,), (1,), 0.5, False) is None
    assert call((5000,), (1,), 0.5, False) is None
    assert calls == ["plain", "behind"]
