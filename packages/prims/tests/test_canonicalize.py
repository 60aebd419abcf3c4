"""Lowering whole graphs without any other layer, and the dialect check."""

import operator

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims import DialectError, TensorMeta, decompositions, lower, prim_of, verify
from flambeau_prims._torch_compat import reads_metadata, symbolic_mode
from torch import fx, nn

aten = torch.ops.aten
P = torch.ops.flambeau_prims


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)
        self.ln = nn.LayerNorm(5)
        self.register_buffer("shift", torch.randn(5))

    def forward(self, x, scale):
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        x = self.ln(F.gelu(self.head(x))) + self.shift
        low, high = x.chunk(2, 0)
        return x.softmax(-1) * scale, low.max(1)[0], high.view(-1)[0:2], torch.zeros(3) + low[0, 0]


def inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 3, 8, 8), torch.rand(4, 1)]


def test_lower_a_module():
    net, args = Net().eval(), inputs()
    lowered = lower(fx.symbolic_trace(net), args)
    assert verify(lowered, leaves=False) == {}
    for got, expected in zip(lowered(*args), net(*args), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
    names = {name for name, _ in lowered.named_parameters()}
    assert names == {name for name, _ in net.named_parameters()}
    for name, parameter in lowered.named_parameters():
        assert parameter is net.get_parameter(name)
    again = lower(lowered, args)
    assert [n.target for n in again.graph.nodes] == [n.target for n in lowered.graph.nodes]


def test_values_on_every_node():
    lowered = lower(fx.symbolic_trace(Net().eval()), inputs())
    interpreter = fx.Interpreter(lowered)
    seen = 0
    for node in lowered.graph.nodes:
        if node.op != "output":
            assert "val" in node.meta
    real = {}

    class Watching(fx.Interpreter):
        def run_node(self, n):
            real[n] = super().run_node(n)
            return real[n]

    Watching(lowered).run(*inputs())
    for node, value in real.items():
        if isinstance(value, torch.Tensor) and node.op != "output":
            val = node.meta["val"]
            assert (val.shape, val.dtype) == (value.shape, value.dtype), node
            pairs = zip(val.shape, val.stride(), value.stride(), strict=True)
            assert all(n == 1 or a == b for n, a, b in pairs), node
            seen += 1
    assert seen > 40 and interpreter.module is lowered


def test_aten_graph_with_a_leaf_and_the_users_lines():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(aten.gelu.default, (x,))
    y.meta["stack_trace"] = '  File "model.py", line 3, in forward\n    y = gelu(x)'
    z = graph.call_function(aten.kthvalue.default, (y, 2))
    first = graph.call_function(operator.getitem, (z, 0))
    graph.output((first,))
    gm = fx.GraphModule(nn.Module(), graph)
    a = torch.randn(4, 6)
    table = {op: f for op, f in decompositions().items() if op != aten.kthvalue.default}
    lowered = lower(gm, [a], table)
    assert verify(lowered) == {"aten.kthvalue.default": 1}
    torch.testing.assert_close(lowered(a)[0], gm(a)[0])
    with pytest.raises(DialectError, match=r"aten.kthvalue.default is not a prim"):
        verify(lowered, leaves=False)
    erf = [n for n in lowered.graph.nodes if n.target is P.erf.default][0]
    assert "model.py" in erf.meta["stack_trace"] and erf.meta["source_op"] == "aten.gelu.default"


def test_mutation_is_refused_with_the_users_line():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.Tensor.add_, (x, 1))
    y.meta["stack_trace"] = '  File "model.py", line 7, in forward\n    x += 1'
    graph.output((y,))
    with pytest.raises(DialectError, match=r"aten.add_.Tensor writes .*an input.*line 7"):
        lower(fx.GraphModule(nn.Module(), graph), [torch.ones(2)])


def test_a_write_that_nothing_else_sees_is_a_new_value():
    def f(x):
        y = x * 2
        z = y.add_(x.double())
        y.mul_(2)
        return y, z

    x = torch.randn(3, 4).t()
    lowered = lower(fx.symbolic_trace(f), [x])
    assert verify(lowered, leaves=False) == {}
    for got, expected in zip(lowered(x), f(x), strict=True):
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    "function",
    [lambda x: (x * 2).t().mul_(3), lambda x: x.view(4, 3).add_(1), lambda x: (x * 2)[0].zero_()],
)
def test_a_write_through_a_view_is_refused(function):
    with pytest.raises(DialectError, match="shares its memory"):
        lower(fx.symbolic_trace(lambda x: (function(x),)), [torch.ones(3, 4)])


def test_a_chosen_table():
    gm = fx.symbolic_trace(lambda x: (torch.tanh(x) + 1,))
    lowered = lower(gm, [torch.ones(2)], table={})
    assert verify(lowered) == {"aten.tanh.default": 1, "aten.add.Tensor": 1}
    assert not any(prim_of(n.target) for n in lowered.graph.nodes)


def _graph(build):
    gm = lower(fx.symbolic_trace(lambda x: (torch.exp(x) * 2,)), [torch.ones(2, 3)])
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = '  File "m.py", line 9, in f\n    exp(x)'
    build(gm.graph, {n.name: n for n in gm.graph.nodes}, list(gm.graph.nodes))
    return gm


def test_verify_names_what_is_wrong():
    def broken_shape(graph, names, nodes):
        exp = [n for n in nodes if n.target is P.exp.default][0]
        exp.meta["val"] = exp.meta["val"].new_empty(7)

    def torch_function(graph, names, nodes):
        with graph.inserting_before(nodes[-1]):
            node = graph.call_function(torch.sin, (nodes[0],))
            node.meta.update(nodes[0].meta)

    def no_value(graph, names, nodes):
        del nodes[1].meta["val"]

    def write(graph, names, nodes):
        exp = [n for n in nodes if n.target is P.exp.default][0]
        with graph.inserting_before(nodes[-1]):
            node = graph.call_function(P.copy_.default, (exp, nodes[0]))
            node.meta.update(exp.meta)

    def bare_output(graph, names, nodes):
        nodes[-1].args = (nodes[-1].args[0][0],)

    def missing_operand(graph, names, nodes):
        exp = [n for n in nodes if n.target is P.exp.default][0]
        exp.args = (None,)

    def method(graph, names, nodes):
        with graph.inserting_before(nodes[-1]):
            node = graph.call_method("exp", (nodes[0],))
            node.meta.update(nodes[0].meta)

    verify(_graph(lambda *_: None))
    for build, text in (
        (broken_shape, r"node exp\S*, rule shapes: .*\[7\].*m.py"),
        (missing_operand, r"node exp\S*, rule shapes: exp: argument a is None.*m.py"),
        (torch_function, "node sin, rule targets.*m.py"),
        (method, "rule targets: call_method exp.*m.py"),
        (no_value, "node exp.*, rule values.*m.py"),
        (write, "node copy_.*, rule effects.*not an input.*m.py"),
        (bare_output, "node output, rule outputs.*m.py"),
    ):
        with pytest.raises(DialectError, match=text):
            verify(_graph(build))


@pytest.mark.parametrize("columns, right", [(4, True), (5, False)])
def test_values_may_be_metadata(columns, right):
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = TensorMeta.of(torch.empty(2, 3))
    made = graph.call_function(P.pad.default, (x, [0, 0], [0, 1], 0.0))
    made.meta["val"] = TensorMeta.of(torch.empty(2, columns))
    graph.output((made,))
    gm = fx.GraphModule({}, graph)
    if right:
        assert verify(gm) == {}
    else:
        with pytest.raises(DialectError, match="the rule gives"):
            verify(gm)


def test_sizes_that_depend_on_elements_become_symbols():
    gm = lower(fx.symbolic_trace(lambda x: (torch.nonzero(x),)), [torch.tensor([1.0, 0.0, 2.0])])
    assert verify(gm, leaves=False) == {}
    node = [n for n in gm.graph.nodes if n.op == "call_function"][0]
    assert prim_of(node.target).name == "nonzero"
    assert isinstance(node.meta["val"].shape[0], torch.SymInt) and node.meta["val"].shape[1] == 1
    assert gm(torch.tensor([0.0, 5.0, 0.0]))[0].tolist() == [[1]]


def test_results_with_names_keep_them():
    gm = lower(
        fx.symbolic_trace(lambda x: (x.topk(2).values, x.max(0).indices)), [torch.rand(3, 4)]
    )
    x = torch.rand(3, 4)
    assert verify(gm, leaves=False) == {}
    assert torch.equal(gm(x)[0], x.topk(2).values) and torch.equal(gm(x)[1], x.max(0).indices)


def test_symbolic_sizes_are_computed_in_the_graph():
    def f(x, w):
        y = torch.softmax(x @ w, -1)
        z = F.layer_norm(y, (7,))
        part = y.reshape(y.shape[0] * 7)[: y.shape[0] - 1]
        return z.reshape(-1), torch.cat([y, z], 1), z[1:, ::2].sum(), part, z.shape[0] * 2

    mode = symbolic_mode()
    fakes = [mode.from_tensor(torch.randn(5, 6)), mode.from_tensor(torch.randn(6, 7))]
    gm = lower(fx.symbolic_trace(f), fakes)
    assert verify(gm, leaves=False) == {}
    for rows, inner in ((5, 6), (9, 4)):
        x, w = torch.randn(rows, inner), torch.randn(inner, 7)
        for got, expected in zip(gm(x, w), f(x, w), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", ["size", "stride", "storage_offset"])
def test_questions_of_metadata_are_no_operations(name):
    """torch 2.11 asks them of tensors with symbolic sizes; the dispatcher does not know them."""
    assert reads_metadata(getattr(torch.ops.aten, name).default)
    assert not reads_metadata(torch.ops.aten.neg.default)
