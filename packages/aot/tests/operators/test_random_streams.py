"""What is drawn: once, in the order of the program, and the same where a value is made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.dropout((x @ w).relu(), 0.5).sin() @ w.t()


def checkpointed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = checkpoint(block, x, w, use_reentrant=False, preserve_rng_state=True)
    return F.dropout(y, 0.3).cos()


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = block(x, w)
    noise = torch.rand_like(y) + torch.randn(8, 8) * torch.bernoulli(torch.full((8, 8), 0.5))
    return F.dropout(y + noise, 0.3).cos()


def outcome(call: Callable[..., Any], runs: int) -> list[torch.Tensor]:
    """Results, gradients and the state of the generator after it all."""
    torch.manual_seed(5)
    seen: list[torch.Tensor] = []
    for seed in range(runs):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(8, 8, generator=generator).requires_grad_()
        w = torch.randn(8, 8, generator=generator).requires_grad_()
        result = call(x, w)
        result.sum().backward()
        assert x.grad is not None and w.grad is not None
        seen += [result.detach(), x.grad, w.grad, torch.get_rng_state()]
    return seen


@pytest.mark.parametrize("program", [checkpointed, plain], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("budget", [None, 0.0])
def test_what_is_computed_again_draws_the_same(program: Any, budget: float | None) -> None:
    options = aot.Options(memory_budget=budget, recompute_share=1.0)
    compiled: Any = aot.aot_function(program, aot.run_as_is, options=options)
    expected, given = outcome(program, 3), outcome(compiled, 3)
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other)
    (entry,) = compiled.compiled.values()
    # What follows the dropout runs again, and nothing in the backward half draws.
    assert any("sin" in name or "mm" in name for name in entry.report.recomputed)
    drawing = [n for n in entry.backward.graph.nodes if _draws(n.target)]
    assert not drawing
    assert any(_draws(n.target) for n in entry.forward.graph.nodes)


def test_two_backward_passes_see_one_mask() -> None:
    compiled = aot.aot_function(checkpointed, aot.run_as_is)
    torch.manual_seed(0)
    x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    result = compiled(x, w).sum()
    first = torch.autograd.grad(result, (x, w), retain_graph=True)
    torch.rand(100)
    second = torch.autograd.grad(result, (x, w))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def _draws(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_a_mask_that_only_the_backward_part_reads_is_drawn_once(partition: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, 0.5, True)[0].sum()

    compiled: Any = aot.aot_function(program, aot.run_as_is, partition=partition)
    outcomes = []
    for call in (program, compiled):
        torch.manual_seed(0)
        x = torch.ones(100, requires_grad=True)
        call(x).backward()
        outcomes.append((x.grad, torch.get_rng_state()))
    for one, other in zip(*outcomes, strict=True):
        assert torch.equal(one, other)
    (entry,) = compiled.compiled.values()
    assert not any(_draws(n.target) for n in entry.backward.graph.nodes)


def with_open_sizes(fn: Callable[..., Any], *examples: torch.Tensor) -> aot.Compiled:
    """The function compiled once, for inputs whose sizes are symbols."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    mode.static_shapes = False
    graph = fx.Graph()
    places = [graph.placeholder(f"x{number}") for number in range(len(examples))]
    for place, example in zip(places, examples, strict=True):
        place.meta["val"] = mode.from_tensor(example, static_shapes=False)
    graph.output((graph.call_function(fn, tuple(places)),))
    return aot.compile(fx.GraphModule(nn.Module(), graph), list(examples), aot.run_as_is)


LAYOUTS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.transpose(0, 1),
    lambda x: x.transpose(0, 2),
    lambda x: (x * 1).permute(1, 2, 0).sin(),
    lambda x: x.unsqueeze(0).contiguous(memory_format=torch.channels_last),
    lambda x: x[:, ::2],
]
DROPS = [
    pytest.param(lambda x: F.dropout(x, 0.3), id="dropout"),
    pytest.param(lambda x: F.alpha_dropout(x, 0.3, True), id="alpha dropout"),
    pytest.param(lambda x: x * x.detach().clone().bernoulli_(0.4), id="in place"),
    pytest.param(lambda x: x + torch.bernoulli(x.detach(), 0.5), id="by a probability"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("drop", DROPS)
def test_masks_are_drawn_in_the_order_of_eager(
    drop: Callable[[torch.Tensor], torch.Tensor], layout: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return drop(layout(x))

    seen = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        x = torch.arange(1.0, 121.0).view(4, 5, 6).requires_grad_()
        torch.manual_seed(3)
        result = call(x)
        result.cos().sum().backward()
        seen.append((result.detach(), x.grad, result.stride(), torch.get_rng_state()))
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("drop", DROPS)
def test_masks_of_open_sizes_are_drawn_in_the_order_of_eager(
    drop: Callable[[torch.Tensor], torch.Tensor], layout: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return drop(layout(x))

    call = with_open_sizes(fn, torch.ones(4, 5, 6, requires_grad=True))
    for size in (4, 7, 3):
        seen = []
        for each in (fn, lambda x: call(x)[0]):
            x = torch.arange(1.0, 1 + 30 * size).view(size, 5, 6).requires_grad_()
            torch.manual_seed(3)
            result = each(x)
            result.cos().sum().backward()
            seen.append((result.detach(), x.grad, result.stride(), torch.get_rng_state()))
        torch.testing.assert_close(seen[1], seen[0])
