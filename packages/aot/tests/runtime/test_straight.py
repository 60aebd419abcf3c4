"""Calls with nothing around their graph are one generated function, and no other call is."""

import flambeau_aot as aot
import pytest
import torch


def compiled(fn, *inputs, grad=True):
    gm = torch.fx.symbolic_trace(fn)
    with torch.set_grad_enabled(grad):
        return aot.aot_eager(gm, list(inputs))


def is_straight(entry) -> bool:
    return type(entry) is not aot.Compiled


def test_plain_calls_are_straight() -> None:
    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    for inputs in ((x, x + 1), (x, w)):
        entry = compiled(lambda a, b: (a * b, a, None, 3), *inputs)
        assert is_straight(entry)
        assert isinstance(entry, aot.Compiled)
        first, same, nothing, number = entry(*inputs)
        assert torch.equal(first, inputs[0] * inputs[1])
        assert same is inputs[0]
        assert nothing is None
        assert number == 3


def test_a_module_is_straight_and_reads_its_own_tensors() -> None:
    layer = torch.nn.Linear(3, 3)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("weight")
    graph.output((graph.call_function(torch.nn.functional.linear, (x, weight)), weight))
    entry = aot.aot_eager(torch.fx.GraphModule(layer, graph), [torch.randn(2, 3)])
    assert is_straight(entry)
    given = torch.randn(2, 3)
    out, weight = entry(given)
    assert weight is layer.weight
    out.sum().backward()
    torch.testing.assert_close(layer.weight.grad, given.sum(0).expand(3, 3))


def write(a, b):
    a.add_(b)
    return (a * 2,)


@pytest.mark.parametrize(
    "fn", [write, lambda a, b: (a.t(), a * b), lambda a, b: ((y := a * b), y.view(9))]
)
def test_calls_with_something_around_them_are_not(fn) -> None:
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    assert not is_straight(compiled(fn, x, y))


def test_wrong_number_of_arguments() -> None:
    entry = compiled(lambda a, b: (a * b,), torch.randn(3), torch.randn(3))
    with pytest.raises(TypeError, match="argument"):
        entry(torch.randn(3))


def test_a_call_without_grad_is_refused_where_grad_is_needed() -> None:
    x = torch.randn(3, requires_grad=True)
    entry = compiled(lambda a: (a * 2,), x, grad=False)
    assert is_straight(entry)
    with torch.no_grad():
        entry(x)
    entry(x.detach())
    with pytest.raises(aot.AotError, match="grad disabled"):
        entry(x)


def test_torch_func_transforms_are_not_bypassed() -> None:
    x = torch.randn(3, requires_grad=True)
    entry = compiled(lambda a: (a.sin(),), x)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda a: entry(a)[0].sum())(x.detach())
