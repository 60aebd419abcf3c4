"""The contract with graph compilers and the errors of this layer."""

import flambeau_aot as aot
import pytest
import torch
from torch import fx


class Model(torch.nn.Module):
    """A parameter, a buffer that is written and a constant one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.add_(x.new_ones(()).sum())
        hidden = (x @ self.weight + self.shift).sin()
        return (hidden @ self.weight, hidden.sum())


def recorded(module, *inputs, **kwargs):
    seen: dict[str, tuple[fx.GraphModule, list, aot.GraphInfo]] = {}

    def compiler(gm, examples, info):
        seen[info.kind] = (gm, examples, info)
        return aot.boxed(gm)

    gm = fx.symbolic_trace(module)
    return aot.compile(gm, list(inputs), compiler, **kwargs), seen


def test_info_of_both_halves() -> None:
    compiled, seen = recorded(Model(), torch.randn(2, 4))
    gm, examples, info = seen["forward"]
    assert info.static_inputs == (0, 1, 2)
    assert info.mutated_outputs == (0,)
    outputs = list(next(n for n in gm.graph.nodes if n.op == "output").args[0])
    assert info.saved_outputs == tuple(range(3, len(outputs)))
    assert len(examples) == 4
    assert hash(info) == hash(info)
    gm, examples, info = seen["backward"]
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    assert len(examples) == len(places)
    for index in info.static_inputs:
        assert places[index].name in ("weight", "shift", "count")
    names = {places[index].name for index in info.reusable_inputs}
    assert names
    assert not names & {"weight", "x", "tangent_0", "tangent_1"}
    compiled(torch.randn(2, 4))


@pytest.mark.parametrize("grad", [True, False])
def test_graphs_are_functional_with_metadata_on_every_node(grad) -> None:
    with torch.set_grad_enabled(grad):
        _, seen = recorded(Model(), torch.randn(2, 4))
    assert set(seen) == ({"forward", "backward"} if grad else {"inference"})
    for gm, _, _ in seen.values():
        for node in gm.graph.nodes:
            assert "val" in node.meta
            assert node.op in ("placeholder", "call_function", "output")
            if isinstance(node.target, torch._ops.OpOverload):
                assert not node.target._schema.is_mutable
        gm.graph.lint()


def test_decompositions_are_applied_and_may_decline() -> None:
    calls = []

    def silu(x):
        return x * torch.sigmoid(x)

    def declined(x):
        calls.append(x)
        return NotImplemented

    aten = torch.ops.aten
    table = {aten.silu.default: silu, aten.sin.default: declined}
    compiled = aot.aot_function(
        lambda x: torch.nn.functional.silu(x).sin(), aot.run_as_is, decompositions=table
    )
    x = torch.randn(5, requires_grad=True)
    result = compiled(x)
    torch.testing.assert_close(result, torch.nn.functional.silu(x).sin())
    (entry,) = compiled.compiled.values()
    targets = {str(node.target) for node in entry.forward.graph.nodes}
    assert "aten.silu.default" not in targets
    assert "aten.sin.default" in targets
    assert len(calls) == 1


def test_decomposition_that_gives_its_argument_back(same_as_eager) -> None:
    aten = torch.ops.aten
    table = {aten.clone.default: lambda x, **_: x, aten.view.default: lambda x, shape: x}

    def fn(x):
        return x.clone(), x.view(3), x.clone().mul_(2)

    same_as_eager(fn, torch.randn(3), decompositions=table)
    same_as_eager(fn, torch.randn(3, requires_grad=True), decompositions=table)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda out: out[:-1], "outputs instead of"),
        (lambda out: [*out[:-1], out[-1].double()], "dtype"),
        (lambda out: [*out[:-1], out[-1][:1]], "shape"),
        (lambda out: [*out[:-1], 3], "not a tensor"),
    ],
)
def test_what_a_compiler_returns_is_checked(spoil, message) -> None:
    def compiler(gm, inputs, info):
        call = aot.boxed(gm)
        return lambda args: spoil(list(call(args)))

    compiled = aot.aot_function(lambda x: (x * 2, x.sin()), compiler)
    with pytest.raises(aot.CompilerContractError, match=message):
        compiled(torch.randn(3, 4))


def test_a_compiler_that_returns_nothing_callable() -> None:
    with pytest.raises(aot.AotError, match="cannot be called"):
        aot.aot_function(lambda x: x.sin(), lambda gm, inputs, info: None)(torch.randn(3))


def test_results_a_compiler_lets_share_memory_are_separated() -> None:
    def compiler(gm, inputs, info):
        def call(args):
            x = args[0]
            args.clear()
            return [x, x.view_as(x)]

        return call

    x = torch.randn(3)
    compiled = aot.aot_function(lambda a: (a.clone(), a.clone()), compiler)
    for _ in range(2):
        one, two = compiled(x)
        one.add_(1)
        assert torch.equal(two, x)
        two.add_(1)
        assert torch.equal(one, two)


def test_data_dependence_names_the_line() -> None:
    def fn(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(aot.DataDependent, match=r"if x\.sum\(\) > 0") as caught:
        aot.aot_function(fn, aot.run_as_is)(torch.randn(3))
    assert "test_compile.py" in caught.value.user_lines


def test_a_failing_node_names_its_users_line() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    bad = graph.call_function(torch.matmul, (x, x))
    bad.meta["stack_trace"] = '  File "model.py", line 12, in forward\n    return x @ x'
    graph.output((bad,))
    with pytest.raises(aot.TraceError, match=r'"model\.py", line 12'):
        aot.aot_eager(fx.GraphModule(torch.nn.Module(), graph), [torch.randn(2, 3)])


def test_lines_reach_forward_and_backward_nodes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    one = graph.call_function(torch.sin, (x,))
    one.meta["stack_trace"] = "first line"
    two = graph.call_function(torch.tanh, (one,))
    two.meta["stack_trace"] = "second line"
    graph.output((two,))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    compiled = aot.aot_eager(gm, [torch.randn(3, requires_grad=True)])
    lines = {
        str(node.target): node.meta.get("stack_trace")
        for node in compiled.joint.graph.nodes
        if node.op == "call_function"
    }
    assert lines["aten.sin.default"] == "first line"
    assert lines["aten.tanh.default"] == "second line"
    assert lines["aten.tanh_backward.default"] == "second line"
    assert lines["aten.cos.default"] == "first line"


@pytest.mark.parametrize(
    "value", [torch.randn(3).to_sparse(), torch.randn(3, dtype=torch.complex64).conj()]
)
def test_inputs_that_are_refused(value) -> None:
    with pytest.raises(aot.Unsupported):
        aot.aot_function(lambda x: x * 2, aot.run_as_is)(value)


def test_a_subclass_as_an_input_is_refused() -> None:
    class Tagged(torch.Tensor):
        pass

    with pytest.raises(aot.Unsupported, match="subclass"):
        aot.aot_function(lambda x: x * 2, aot.run_as_is)(torch.randn(3).as_subclass(Tagged))


def test_literal_arguments_are_fixed() -> None:
    gm = fx.symbolic_trace(lambda x, n: (x * n,))
    compiled = aot.aot_eager(gm, [torch.ones(2), 3])
    assert torch.equal(compiled(torch.ones(2), 3)[0], torch.full((2,), 3.0))
    with pytest.raises(aot.AotError, match="was 3 when traced"):
        compiled(torch.ones(2), 4)


def test_report_and_text() -> None:
    compiled, _ = recorded(Model(), torch.randn(2, 4))
    report = compiled.report
    assert set(report.seconds) == set(aot.PASSES)
    assert report.saved_bytes <= report.saved_bytes_save_all
    assert "saved" in str(report)
    text = aot.show_joint(compiled.joint, compiled.halves.saved_nodes)
    assert "[forward, matmul" in text
    assert "[backward, " in text
    assert ", saved]" in text


def test_shown_graph_runs() -> None:
    compiled, _ = recorded(Model(), torch.randn(2, 4))
    scope: dict = {}
    exec(aot.show_graph(compiled.forward.graph, "forward"), scope)
    places = [n for n in compiled.forward.graph.nodes if n.op == "placeholder"]
    inputs = [torch.randn(node.meta["val"].shape) for node in places]
    expected = compiled.forward(*inputs)
    given = scope["forward"](*inputs)
    for one, other in zip(expected, given):
        assert torch.equal(one, other)


def test_equal_results_without_elements_are_two_objects() -> None:
    def fn(x):
        return x.sin(), x.sin()

    first, second = aot.aot_function(fn, aot.run_as_is)(torch.randn(0, 3))
    assert first is not second
