"""Collectives of a backward pass: they stay in it, and none is left out."""

import flambeau_aot as aot
import pytest
import torch
import torch.distributed._functional_collectives as functional  # noqa: F401 - has their shape rules


def summed(x: torch.Tensor) -> torch.Tensor:
    own = torch.ops._c10d_functional
    return own.wait_tensor(own.all_reduce(x, "sum", "0"))


GRADIENTS = {
    "read": summed,
    "unread": lambda grad: (summed(grad), grad * 2)[1],
    "zeroed": lambda grad: summed(grad).zero_(),
    "of what is known": lambda grad: summed(torch.ones_like(grad)),
    "of what is known, unread": lambda grad: (summed(torch.ones_like(grad)), grad)[1],
    "not of the cotangent": lambda grad: summed(torch.zeros_like(grad)).sin(),
    "of a cotangent times zero": lambda grad: summed(grad * 0),
}


@pytest.mark.parametrize("partition", ["min_cut_partition", "save_all"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_a_collective_of_the_backward_pass_is_in_its_graph(name: str, partition: str) -> None:
    class Communicates(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, grad):
            return GRADIENTS[name](grad)

    counts: dict[str, int] = {}

    def count(gm, example_inputs, info):
        targets = [str(node.target) for node in gm.graph.nodes]
        counts[info.kind] = sum("all_reduce" in target for target in targets)
        return aot.run_as_is(gm, example_inputs, info)

    chosen = getattr(aot, partition)
    run = aot.aot_function(lambda x: Communicates.apply(x * 2).cos(), count, partition=chosen)
    assert run(torch.randn(3, requires_grad=True)).requires_grad
    assert counts == {"forward": 0, "backward": 1}
