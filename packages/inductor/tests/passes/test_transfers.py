"""Numbers go to a GPU in one row; what depends on the GPU, or is drawn, goes when it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.ir.program import Extern
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import schedule
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

GPU = torch.device("cuda", 0)


def corrected(p: Tensor, q: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    """Steps of two parameters, with numbers of which the second is known last."""
    first = p / (1 - 0.9**s)
    return first, q * (1 - 0.9**t), first * t


def lowered(fn: Callable[..., Any], where: tuple[torch.device, ...]) -> fx.GraphModule:
    with FakeTensorMode(allow_non_fake_inputs=True):
        shapes = [(4, 4) if device == GPU else () for device in where]
        inputs = [torch.empty(s, device=d) for s, d in zip(shapes, where, strict=True)]
        return flambeau_prims.lower(fx.symbolic_trace(fn), inputs)


def transfers(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if name_of(node) == "device_put"]


CPU = torch.device("cpu")
WHERE = (GPU, GPU, CPU, CPU)


def test_numbers_go_there_in_one_row_before_anything_runs() -> None:
    gm = lowered(corrected, WHERE)
    assert len(transfers(gm.graph)) >= 3
    made = rewrite(gm)
    (there,) = transfers(made.graph)
    names = [name_of(node) for node in made.graph.nodes]
    order = list(made.graph.nodes)
    behind = [names[k] for k in range(order.index(there))]
    assert "div" not in behind and behind.count("cat") == 1
    program = schedule(lower_graph(made, [node.meta["val"] for node in order[:4]]))
    (copy,) = [step for step in program.steps if isinstance(step, Extern)]
    assert copy.target == "aten._to_copy.default" and ("non_blocking", True) in copy.kwargs


def brought(p: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    return p * s.to("cuda:0"), p * (s + 1).to("cuda:0")


def test_a_copy_of_what_a_caller_may_write_to_waits() -> None:
    gm = lowered(brought, (GPU, CPU))
    inputs = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    calls = [s for s in schedule(lower_graph(gm, inputs)).steps if isinstance(s, Extern)]
    assert [("non_blocking", True) in call.kwargs for call in calls] == [False, True]


def test_the_values_are_those_that_went_alone() -> None:
    made = rewrite(lowered(corrected, WHERE))
    for node in made.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = node.kwargs | {"device": CPU}
    made.recompile()
    inputs = [torch.randn(4, 4), torch.randn(4, 4), torch.tensor(3.0), torch.tensor(5.0)]
    for got, want in zip(made(*inputs), corrected(*inputs), strict=True):
        torch.testing.assert_close(got, want)


def one_number(p: Tensor, s: Tensor) -> Tensor:
    return p / (1 - 0.9**s)


def of_the_gpu(p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return p * q.sum().to("cpu").to("cuda:0"), p * (q.mean().to("cpu") + 1).to("cuda:0")


def drawn(p: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    return p * torch.rand_like(s), p * torch.rand_like(s)


def returned(p: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    return (s + 1).to("cuda:0"), (t + 1).to("cuda:0"), p + 1


@pytest.mark.parametrize(
    ("fn", "where"),
    [
        (one_number, (GPU, CPU)),
        (of_the_gpu, (GPU, GPU)),
        (drawn, (GPU, CPU)),
        (returned, (GPU, CPU, CPU)),
    ],
)
def test_others_go_when_they_did(fn: Callable[..., Any], where: tuple[torch.device, ...]) -> None:
    gm = lowered(fn, where)
    count = len(transfers(gm.graph))
    made = rewrite(gm)
    assert count and len(transfers(made.graph)) == count
