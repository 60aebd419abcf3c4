"""Joint graphs exported with descriptions of what goes in and out."""

import flambeau_aot as aot
import pytest
import torch
from torch import fx


class Model(torch.nn.Module):
    """A parameter under two names, a buffer that is written, a constant, nested arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))
        self.tied = self.weight
        self.register_buffer("count", torch.zeros(()))

    def forward(self, batch, scale):
        self.count.add_(1)
        y = (batch["x"] @ self.weight + torch.tensor([1.0, 2.0, 3.0])) * scale
        return {"y": y, "more": [y.sum(), batch["x"]]}


def exported():
    x = torch.randn(2, 3, requires_grad=True)
    return aot.export_joint(Model(), [{"x": x}], {"scale": torch.randn(3)})


def test_every_input_and_output_is_described() -> None:
    found = exported()
    assert [(item.kind, item.source, item.requires_grad) for item in found.inputs] == [
        ("parameter", "weight", True),
        ("buffer", "count", False),
        ("constant", "constant 0", False),
        ("argument", "args[0]['x']", True),
        ("argument", "kwargs['scale']", False),
        ("tangent", "result['y']", False),
        ("tangent", "result['more'][0]", False),
    ]
    assert [(item.kind, item.source) for item in found.outputs] == [
        ("mutation", "count"),
        ("result", "result['y']"),
        ("result", "result['more'][0]"),
        ("gradient", "weight"),
        ("gradient", "args[0]['x']"),
    ]
    names = [node.name for node in found.module.graph.nodes if node.op == "placeholder"]
    assert names == [item.name for item in found.inputs]
    assert found.inputs[3].shape == (2, 3)
    assert found.outputs[3].dtype == torch.float32


def test_the_graph_computes_what_it_says() -> None:
    found = exported()
    values = [torch.randn(item.shape) if item.shape else torch.randn(()) for item in found.inputs]
    outputs = dict(zip([(o.kind, o.source) for o in found.outputs], found.module(*values)))
    weight, count, constant, x, scale, along, total = values
    y = (x @ weight + constant) * scale
    torch.testing.assert_close(outputs["result", "result['y']"], y)
    torch.testing.assert_close(outputs["mutation", "count"], count + 1)
    slope = (along + total) * scale
    torch.testing.assert_close(outputs["gradient", "weight"], x.t() @ slope)
    torch.testing.assert_close(outputs["gradient", "args[0]['x']"], slope @ weight.t())
    found.module.graph.lint()


def test_functions_graphs_and_no_gradient() -> None:
    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    function = aot.export_joint(lambda a, b: (a * b).sin(), [x, w])
    graph = aot.export_joint(fx.symbolic_trace(lambda a, b: ((a * b).sin(),)), [x, w])
    assert [item.kind for item in function.outputs] == ["result", "gradient"]
    assert [item.source for item in graph.outputs] == ["result[0]", "args[1]"]
    bare = aot.export_joint(lambda a: a.sin(), [x])
    assert [item.kind for item in bare.outputs] == ["result"]
    assert bare.joint.tangents == ()


def test_one_tensor_given_twice_and_results_that_share_memory() -> None:
    x = torch.randn(4, requires_grad=True)

    def fn(a, b):
        y = a * b
        return y.view(2, 2), y.view(4, 1)

    found = aot.export_joint(fn, [x, x])
    assert found.inputs[0].source == "args[0] is args[1]"
    assert found.outputs[0].kind == "base of results"
    assert found.outputs[0].source == "result[0], result[1]"
    assert found.inputs[1].source == "base of results: result[0], result[1]"


@pytest.mark.parametrize("source", [Model().eval(), torch.nn.Linear(3, 3)])
def test_aot_function_takes_modules(source) -> None:
    if isinstance(source, Model):
        compiled = aot.aot_function(source, aot.run_as_is)
        result = compiled({"x": torch.randn(2, 3)}, scale=torch.ones(3))["y"]
    else:
        compiled = aot.aot_function(source, aot.run_as_is)
        result = compiled(torch.randn(2, 3))
    result.sum().backward()
    assert source.weight.grad is not None
