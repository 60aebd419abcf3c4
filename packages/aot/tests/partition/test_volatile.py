"""Inputs that are written to between forward and backward: noticed where eager notices it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.utils.checkpoint import checkpoint


def cloned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (w @ x.clone().detach()).exp()


def of_its_result(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.exp() * w


def of_a_view(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.t()[:2] * 2).sin() @ w


def cast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.double() * w.double()).float()


def masked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, w, -w) + w.tanh()


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    scale = (x * x).mean().sqrt() + 1
    return torch.nn.functional.gelu(w * scale).sigmoid()


def read_itself(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.sin() @ w + w @ x


def read_by_a_view(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return w @ x.detach().t()


PROGRAMS = (
    cloned, of_its_result, of_a_view, cast, masked, chain, read_itself, read_by_a_view,
)  # fmt: skip


def written_between(
    call: Callable[..., Any], kind: str, write: bool = True
) -> list[torch.Tensor] | str:
    """Gradients, or the error, of a call after which its input is written to."""
    torch.manual_seed(0)
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    leaf = torch.zeros(3, 3, requires_grad=kind == "part of a graph")
    x = x + leaf
    result = call(x, w)
    if write:
        with torch.no_grad():
            x.mul_(3)
    try:
        result.sum().backward()
    except RuntimeError as error:
        return str(error)
    return [torch.zeros(()) if item.grad is None else item.grad for item in (w, leaf)]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("kind", ["plain", "part of a graph"])
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
@pytest.mark.parametrize("budget", [None, 0.0])
def test_a_write_to_an_input(
    program: Callable[..., Any], kind: str, partition: Any, budget: float | None
) -> None:
    options = aot.Options(memory_budget=budget, recompute_share=1.0)
    compiled = aot.aot_function(program, aot.run_as_is, partition=partition, options=options)
    expected, given = written_between(program, kind), written_between(compiled, kind)
    if isinstance(expected, str):
        assert "modified by an inplace operation" in str(given)
    else:
        torch.testing.assert_close(given, expected)
    both = [written_between(call, kind, write=False) for call in (program, compiled)]
    torch.testing.assert_close(*both)


def test_a_buffer_is_written_to_and_a_parameter_is_not() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4))
            self.register_buffer("table", torch.randn(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.weight.double().float()) @ self.table.clone().cos()

    torch.manual_seed(0)
    module = Net()
    compiled = aot.aot_module(module, aot.run_as_is)
    x = torch.randn(2, 4, requires_grad=True)
    expected = torch.autograd.grad(module(x).sum(), x)
    result = compiled(x).sum()
    with torch.no_grad():
        module.table.zero_()
    torch.testing.assert_close(torch.autograd.grad(result, x), expected)
    (entry,) = compiled.compiled.values()
    names = [node.name for node in entry.halves.saved_nodes]
    assert "weight" in names, "the cast of a parameter is made again"


def test_a_region_under_a_checkpoint_reads_its_inputs_again() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda v, u: (v.exp() * u).sin(), x, w, use_reentrant=False)

    compiled: Any = aot.aot_function(program, aot.run_as_is)
    both = [written_between(call, "plain", write=False) for call in (program, compiled)]
    torch.testing.assert_close(*both)
    (entry,) = compiled.compiled.values()
    assert any("exp" in name for name in entry.report.recomputed)


def flipped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    turned = x.flip(1)
    return turned.relu(), turned


def copied(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    turned = x.flip(1)
    return turned.clone().exp().sin(), turned


def one_of_several(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    normal = torch.nn.functional.layer_norm(x, (3,))
    return normal.relu(), normal.t()


def pole(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.reciprocal(), x * 2


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "program", [flipped, copied, one_of_several, pole], ids=lambda fn: fn.__name__
)
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
@pytest.mark.parametrize("written", [0, 1, None])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_write_to_a_result(
    program: Callable[..., Any], partition: Any, written: int | None, used: tuple[int, ...]
) -> None:
    """The gradient where eager gives one; else the error, or the gradient as of the call."""
    seen: list[Any] = []
    compiled = aot.aot_function(program, aot.run_as_is, partition=partition)
    for call, write in ((program, written), (compiled, written), (program, None)):
        x = torch.tensor([[0.0, 1.0, -2.0], [0.5, -0.5, 3.0]], requires_grad=True)
        results = call(x)
        total = sum(results[place].sum() for place in used)
        if write is not None:
            with torch.no_grad():
                results[write].fill_(float("nan"))
        try:
            seen.append(torch.autograd.grad(total, x)[0])
        except RuntimeError as error:
            seen.append(str(error))
    eager, given, unwritten = seen
    if isinstance(given, str):
        assert "modified by an inplace operation" in given and isinstance(eager, str)
    else:
        expected = unwritten if isinstance(eager, str) else eager
        torch.testing.assert_close(given, expected, equal_nan=True)


def test_an_empty_view_of_an_input_counts_its_writes() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x.sin()

    compiled = aot.aot_function(program, aot.run_as_is)
    grads = []
    for call in (program, compiled):
        leaf = torch.ones(1, 3, requires_grad=True)
        x = leaf * 2
        call(x, x[1:]).sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_a_reshape_in_place_beside_what_is_saved(partition: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.t_()
        return (y.sin() * w).exp() * y

    compiled = aot.aot_function(program, aot.run_as_is, partition=partition)
    for shared in (False, True, False):
        grads = []
        for call in (program, compiled):
            y, w = torch.ones(3), torch.ones(3, requires_grad=True)
            result = call(y[:2] if shared else torch.ones(2), y, w)
            grads.append(torch.autograd.grad(result.sum(), w)[0])
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_what_no_gradient_is_asked_of_does_not_divide_by_zero(partition) -> None:
    def fn(x):
        return x.amax(0), x.amax(0) * 0.5, x.amax(0), x.log(), x * 3

    x = torch.rand(2, 3, requires_grad=True) + 0.5
    compiled = aot.aot_function(fn, aot.run_as_is, partition=partition)
    for place in range(5):
        (expected,) = torch.autograd.grad(fn(x)[place].sum(), x)
        (given,) = torch.autograd.grad(compiled(x)[place].sum(), x)
        torch.testing.assert_close(given, expected)


def loss_of(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sin().log_softmax(1)[:, 0].sum()


def test_a_leaf_is_kept_and_a_value_with_a_history_is_not() -> None:
    """A leaf is a parameter, wherever it comes from; what replaces it at another call may be
    written to."""
    compiled: Any = aot.aot_function(loss_of, aot.run_as_is)
    leaf = torch.randn(4, 5, requires_grad=True)
    for history in (False, True, False):
        grads = []
        for call in (loss_of, compiled):
            x = leaf * 1 if history else leaf
            result = call(x)
            if history:
                with torch.no_grad():
                    x.zero_()
            grads.append(torch.autograd.grad(result, leaf)[0])
        torch.testing.assert_close(*grads)


def test_a_graph_for_leaves_is_compiled_again_for_others() -> None:
    gm = torch.fx.symbolic_trace(lambda x: (loss_of(x),))
    leaf = torch.randn(4, 5, requires_grad=True)
    compiled = aot.compile(gm, [leaf], aot.run_as_is)
    assert compiled.joint is not None and compiled.joint.plan.leaves == (0,)
    assert compiled.halves is not None
    assert "exp" not in " ".join(node.name for node in compiled.halves.saved_nodes)
    expected = torch.autograd.grad(loss_of(leaf), leaf)
    torch.testing.assert_close(torch.autograd.grad(compiled(leaf)[0], leaf), expected)
    assert not compiled.variants
    x = leaf * 1
    (result,) = compiled(x)
    with torch.no_grad():
        x.zero_()
    torch.testing.assert_close(torch.autograd.grad(result, leaf), expected)
    assert len(compiled.variants) == 1
    (result,) = compiled(leaf)
    with torch.no_grad():
        leaf.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def _by_float32(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dtype == torch.float32:
        return NotImplemented
    return (a.float() * b.float()).bfloat16()


def test_an_argument_that_eager_keeps_is_kept_as_it_is() -> None:
    """Forth and back convert it to a wider type, in an operator that is there once."""
    gm = torch.fx.symbolic_trace(lambda x, table: (-x * table,))
    x = torch.randn(4, 3, 8, dtype=torch.bfloat16, requires_grad=True)
    table = torch.randn(3, 8, dtype=torch.bfloat16)
    decompositions = {torch.ops.aten.mul.Tensor: _by_float32}
    compiled = aot.compile(gm, [x, table], aot.run_as_is, decompositions=decompositions)
    assert compiled.halves is not None
    assert [node.name for node in compiled.halves.saved_nodes] == ["table"]
    assert "aten._to_copy.default" in compiled.halves.recomputed
    given, expected = (torch.autograd.grad(call(x, table)[0].sum(), x) for call in (compiled, gm))
    torch.testing.assert_close(given, expected)
    for call in (gm, compiled):
        written = table.clone()
        (result,) = call(x, written)
        written.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
