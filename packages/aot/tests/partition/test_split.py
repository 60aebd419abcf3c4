"""Two graphs of one: their order, and what is copied."""

import flambeau_aot as aot
import torch
from torch.nn import functional as F


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
