"""Two graphs of one: their order, and what is copied."""

from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def test_what_runs_twice_runs_just_before_it_is_read() -> None:
    def fn(x, *weights):
        for w in weights:
            x = F.gelu(x @ w)
        return x.sum()

    values = [torch.randn(64, 64, requires_grad=True) for _ in range(9)]
    compiled = aot.aot_function(fn, aot.run_as_is)
    compiled(*values)
    (entry,) = compiled.compiled.values()
    nodes = list(entry.backward.graph.nodes)
    again = [node for node in nodes if node.target is torch.ops.aten.gelu.default]
    assert len(again) >= 7
    place = {node: index for index, node in enumerate(nodes)}
    waits = [min(place[user] for user in node.users) - place[node] for node in again]
    assert max(waits) <= 6
    one = 64 * 64 * 4
    assert entry.report.backward_peak_bytes <= entry.report.saved_bytes + (len(values) + 3) * one


def test_a_view_of_a_written_input_is_saved_as_a_copy() -> None:
    def fn(x, w):
        y = torch.mm(x.t().clone(), w)
        x.add_(1)
        return y.sum()

    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    for partition in (aot.min_cut_partition, aot.save_all):
        compiled = aot.aot_function(fn, aot.run_as_is, partition=partition)
        given = x.clone()
        (grad,) = torch.autograd.grad(compiled(given, w), w)
        torch.testing.assert_close(
            grad, x.sum(1, keepdim=True).expand(3, 3) * 0 + x @ torch.ones(3, 3)
        )
        assert torch.equal(given, x + 1)


def test_values_that_share_memory_are_not_offered_for_reuse() -> None:
    offered = {}

    def compiler(gm, examples, info):
        call = aot.boxed(gm)
        if info.kind == "backward":
            places = [node for node in gm.graph.nodes if node.op == "placeholder"]
            offered.update({places[i].name: i for i in info.reusable_inputs})

        def run(args):
            held = [args[i] for i in info.reusable_inputs]
            outputs = [item.clone() for item in call(args)]
            for item in held:
                item.fill_(float("nan"))
            return outputs

        return run

    def fn(x, w):
        y = torch.ops.aten._unsafe_view(torch.exp(x @ w), [9])
        return y, (y * y).sin().sum()

    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    y, total = aot.aot_function(fn, compiler, partition=aot.save_all)(x, w)
    total.backward()
    assert not y.isnan().any()
    assert offered


def test_a_saved_copy_of_a_written_input_keeps_its_gaps() -> None:
    def program(x):
        # What is kept is another tensor: a write to `x` is no write to that.
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 0, lambda t: t + 0):
            result = x.sin() * x
        with torch.no_grad():
            x.add_(0.5)
        return result

    compiled = aot.aot_function(program, aot.run_as_is, partition=saving_inputs)
    grads = []
    for call in (program, compiled):
        torch.manual_seed(0)
        x = torch.randn(3, 6)[:, ::2].requires_grad_()
        call(x).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0])
    (entry,) = compiled.compiled.values()
    (saved,) = [n for n in entry.backward.graph.nodes if n.op == "placeholder"][:1]
    (output,) = [n for n in entry.forward.graph.nodes if n.op == "output"]
    copies = [n for n in output.args[0] if n.target is torch.ops.aten.as_strided.default]
    assert copies and {tuple(n.meta["val"].stride()) for n in copies} == {(6, 2)}
    assert tuple(saved.meta["val"].stride()) == (6, 2)


def saving_inputs(joint, options):
    """Nothing but inputs crosses."""
    return list(joint.primals)


@pytest.mark.parametrize("view", [lambda x: x.expand(2, 3), lambda x: x.unfold(0, 2, 1)])
def test_a_view_that_repeats_elements_of_a_written_input_is_saved_by_the_input(view: Any) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda v, u: v.sin() * u, view(x), w, use_reentrant=False)
        x.mul_(2)
        return y

    for cut in (aot.save_all, aot.min_cut_partition):
        x, w = torch.arange(3.0), torch.ones(2, 1, requires_grad=True)
        expected = view(x).sin().sum(1, keepdim=True)
        aot.aot_function(fn, aot.run_as_is, partition=cut)(x, w).sum().backward()
        torch.testing.assert_close(w.grad, expected)
