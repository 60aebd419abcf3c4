"""Biases of convolutions become additions: on a GPU, with eager's values, dtypes and strides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor import Options, prepare
from flambeau_inductor.passes.rewriter import rewrite_module
from flambeau_inductor.pre_grad import convolutions
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensorMode

KINDS = {
    torch.conv1d: ((2, 4, 9), (6, 4, 3)),
    torch.conv2d: ((2, 4, 9, 8), (6, 4, 3, 3)),
    torch.conv3d: ((2, 4, 5, 6, 4), (6, 4, 3, 3, 3)),
    torch.conv_transpose1d: ((2, 4, 9), (4, 6, 3)),
    torch.conv_transpose2d: ((2, 4, 9, 8), (4, 6, 3, 3)),
    torch.conv_transpose3d: ((2, 4, 5, 6, 4), (4, 6, 3, 3, 3)),
}


def graph_of(kind: Any, result: torch.dtype | None = None, *, bias: bool = True) -> fx.GraphModule:
    """A convolution whose result is read twice, its values marked as on a GPU."""
    graph = fx.Graph()
    x, w, b = (graph.placeholder(name) for name in "xwb")
    made = graph.call_function(kind, (x, w, b, 1) if bias else (x, w))
    graph.output((graph.call_function(torch.relu, (made,)), made))
    with FakeTensorMode():
        for node in (x, w, b, made):
            dtype = result if node is made and result is not None else torch.float32
            node.meta["val"] = torch.empty(2, dtype=dtype, device="cuda")
    return fx.GraphModule(nn.Module(), graph)


def inputs_of(kind: Any) -> tuple[Tensor, ...]:
    image, weight = KINDS[kind]
    return torch.randn(image), torch.randn(weight), torch.randn(6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_addition_follows(kind: Any) -> None:
    gm, inputs = graph_of(kind), inputs_of(kind)
    wanted = gm(*inputs)
    assert prepare(gm)["separate_convolution_biases"] == 1
    (node,) = gm.graph.find_nodes(op="call_function", target=kind)
    assert node.args[2] is None and node.args[3] == 1
    (added,) = gm.graph.find_nodes(op="call_function", target=torch.add)
    assert list(node.users) == [added] and len(added.users) == 2
    found = gm(*inputs)
    torch.testing.assert_close(found, wanted)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]


def test_gradients_stay() -> None:
    gm, inputs = graph_of(torch.conv2d), [t.requires_grad_() for t in inputs_of(torch.conv2d)]
    wanted = torch.autograd.grad(gm(*inputs)[0].square().sum(), inputs)
    rewrite_module(gm, convolutions.RULES)
    found = torch.autograd.grad(gm(*inputs)[0].square().sum(), inputs)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)  # added in another order


def test_under_autocast_the_bias_has_the_dtype_of_the_result() -> None:
    gm, inputs = graph_of(torch.conv2d, torch.bfloat16), inputs_of(torch.conv2d)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = gm(*inputs)
        assert rewrite_module(gm, convolutions.RULES) == 1
        found = gm(*inputs)
    assert found[0].dtype == wanted[0].dtype == torch.bfloat16
    # a CPU's library adds before it rounds
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_left_alone() -> None:
    on_cpu = graph_of(torch.conv2d)
    for node in on_cpu.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = torch.empty(2)
    assert rewrite_module(on_cpu, convolutions.RULES) == 0
    assert rewrite_module(graph_of(torch.conv2d, bias=False), convolutions.RULES) == 0
    assert rewrite_module(graph_of(torch.conv2d, torch.complex64), convolutions.RULES) == 0
    skipped = Options(skip_passes=("separate_convolution_biases",))
    assert "separate_convolution_biases" not in prepare(graph_of(torch.conv2d), skipped)
    assert {kind.__name__ for kind in KINDS} == set(convolutions.CONVOLUTIONS)
