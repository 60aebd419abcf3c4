"""The front door: what a compiled graph is, odd graphs, refusals, the report."""

from __future__ import annotations

import gc
import weakref
from dataclasses import FrozenInstanceError
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import InductorError, Options
from flambeau_inductor.compile import STAGES
from torch import fx

from tests.facts import Info


def graph_of(*nodes: Any) -> tuple[fx.Graph, list[fx.Node]]:
    graph = fx.Graph()
    placeholders = []
    for position, value in enumerate(nodes):
        node = graph.placeholder(f"arg{position}")
        node.meta["val"] = value
        placeholders.append(node)
    return graph, placeholders


def compiled(graph: fx.Graph, inputs: list[Any], root: Any = None, **kwargs: Any) -> Any:
    module = fx.GraphModule(root or torch.nn.Module(), graph)
    return flambeau_inductor.compile(module, inputs, **kwargs)


def test_an_empty_graph():
    graph, _ = graph_of()
    graph.output(())
    assert compiled(graph, [])([]) == ()


def test_inputs_and_literals_are_returned_as_they_are():
    x = torch.randn(3)
    graph, (node,) = graph_of(x)
    graph.output((node, None, 3, 2.5, True, node, float("inf")))
    run = compiled(graph, [x])
    results = run([x])
    assert results[0] is x and results[5] is x
    assert results[1:5] == (None, 3, 2.5, True) and results[6] == float("inf")
    assert run.report.kernels == 0 and not run.report.cache_hit and run.report.fused_ops == 0


def test_constants_of_the_module():
    root = torch.nn.Module()
    root.register_buffer("table", torch.arange(6.0).reshape(2, 3))
    x = torch.randn(2, 3)
    graph, (node,) = graph_of(x)
    table = graph.get_attr("table")
    added = graph.call_function(torch.ops.flambeau_prims.add.default, (node, table))
    graph.output((added, table))
    out, same = compiled(graph, [x], root)([x])
    torch.testing.assert_close(out, x + root.table)
    assert same.data_ptr() == root.table.data_ptr()


def test_an_input_that_nobody_uses():
    x, y = torch.randn(3), torch.randn(4)
    graph, (first, _) = graph_of(x, y)
    graph.output((graph.call_function(torch.ops.flambeau_prims.neg.default, (first,)),))
    boxed = [x, y]
    torch.testing.assert_close(compiled(graph, [x, y])(boxed)[0], -x)
    assert boxed == []


def pointwise(size: int = 8) -> tuple[fx.Graph, torch.Tensor]:
    x = torch.randn(size)
    graph, (node,) = graph_of(x)
    graph.output((graph.call_function(torch.ops.flambeau_prims.exp.default, (node,)),))
    return graph, x


def test_other_inputs_than_compiled_for_are_refused():
    graph, x = pointwise()
    run = compiled(graph, [x])
    for other in (torch.randn(9), torch.randn(8).double(), torch.randn(16)[::2], 3):
        with pytest.raises(ValueError, match="input 0"):
            run([other])
    torch.testing.assert_close(run([x])[0], x.exp())


def test_a_caller_that_gives_info_guards_its_inputs():
    graph, x = pointwise()
    run = compiled(graph, [x], info=Info("forward", "told"))
    assert "check_input(" not in run.report.sources["wrapper.py"]
    assert run.report.name == "told"
    asked = compiled(graph, [x], info=Info("forward", "told"), options=Options(check_inputs=True))
    assert "check_input(" in asked.report.sources["wrapper.py"]


def test_results_carry_no_autograd_history():
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    graph, (a, b) = graph_of(x.detach(), w.detach())
    product = graph.call_function(torch.ops.flambeau_prims.mm.default, (a, b))
    graph.output((graph.call_function(torch.ops.flambeau_prims.exp.default, (product,)),))
    (result,) = compiled(graph, [x.detach(), w.detach()])([x, w])
    assert not result.requires_grad
    torch.testing.assert_close(result, (x @ w).exp().detach())


def test_autocast_outside_does_not_reach_inside():
    x = torch.randn(2, 3, 8, 8)
    w = torch.randn(4, 3, 3, 3)
    graph, (a, b) = graph_of(x, w)
    args = (a, b, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    graph.output((graph.call_function(torch.ops.flambeau_prims.convolution.default, args),))
    run = compiled(graph, [x, w])
    with torch.autocast("cpu", torch.bfloat16):
        (result,) = run([x, w])
    torch.testing.assert_close(result, torch.conv2d(x, w))


def test_default_device_and_dtype_do_not_matter():
    graph, x = pointwise()
    run = compiled(graph, [x])
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            (result,) = run([x])
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(result, x.exp())


def test_inference_mode():
    graph, x = pointwise()
    run = compiled(graph, [x])
    with torch.inference_mode():
        torch.testing.assert_close(run([x])[0], x.exp())


def test_operators_without_a_decomposition_are_counted_and_named():
    x = torch.randn(6, 6)
    graph, (node,) = graph_of(x)
    inverse = graph.call_function(torch.ops.aten.linalg_inv_ex.default, (node,))
    inverse.meta["val"] = torch.ops.aten.linalg_inv_ex.default(x)
    import operator

    first = graph.call_function(operator.getitem, (inverse, 0))
    first.meta["val"] = inverse.meta["val"][0]
    graph.output((graph.call_function(torch.ops.flambeau_prims.exp.default, (first,)),))
    run = compiled(graph, [x])
    assert run.report.externs == {"aten.linalg_inv_ex.default": 1}
    (fallback,) = run.report.fallbacks
    assert fallback.operator == "aten.linalg_inv_ex.default"
    assert fallback.reason == "no decomposition"
    assert "no kernel: aten.linalg_inv_ex.default" in str(run.report)
    torch.testing.assert_close(run([x])[0], torch.linalg.inv(x).exp())


def test_an_operator_that_writes_is_refused():
    x = torch.randn(3)
    graph, (node,) = graph_of(x)
    written = graph.call_function(torch.ops.aten.add_.Tensor, (node, node))
    written.meta["val"] = x
    graph.output((written,))
    with pytest.raises(InductorError, match="writes"):
        compiled(graph, [x])


def test_negated_memory_is_refused():
    graph, (node,) = graph_of(torch.randn(3))
    graph.output((graph.call_function(torch.ops.flambeau_prims.exp.default, (node,)),))
    negated = torch.randn(3, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with pytest.raises(InductorError, match="negative"):
        compiled(graph, [negated])


PARAMETER = Info(static_inputs=(1,))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("info", [PARAMETER, Info(), Info("forward")])
def test_weights_are_packed_where_they_were_promised_to_stay(frozen: bool, info: Info) -> None:
    inputs = [torch.randn(1, 4, 6, 6), torch.randn(8, 4, 3, 3)]
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x, w: torch.conv2d(x, w).relu()), inputs)
    made = flambeau_inductor.compile(gm, inputs, info, Options(freezing=frozen))
    packed = "aten.convolution.default.packed" in made.report.sources["wrapper.py"]
    assert packed == (frozen and info == PARAMETER)
    for _ in range(2):
        torch.testing.assert_close(made(list(inputs))[0], torch.conv2d(*inputs).relu())


def test_the_report_says_what_was_done():
    def function(x, w):
        return torch.softmax(torch.relu(x @ w), -1).sum(0)

    inputs = [torch.randn(30, 8), torch.randn(8, 16)]
    gm = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
    report = flambeau_inductor.compile(gm, inputs).report
    assert list(report.seconds) == [name for name, *_ in STAGES]
    assert all(spent >= 0 for spent in report.seconds.values())
    assert report.externs == {"aten.mm.out": 1}
    assert report.fused_ops >= 5 and 1 <= report.distinct_kernels <= report.kernels
    assert set(report.sources) == {"kernels.cpp", "wrapper.py"}
    assert report.to_dict()["kernels"] == report.kernels
    assert "aten.mm.out x1" in str(report)


def test_options_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Options().kernels = "triton"  # type: ignore[misc]


def test_triton_kernels_of_a_cpu_need_its_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    x = torch.randn(3)
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x: x.tanh()), [x])
    with pytest.raises(InductorError, match="set TRITON_INTERPRET=1"):
        flambeau_inductor.compile(gm, [x], options=Options(kernels="triton"))


def test_a_graph_and_its_wrapper_can_be_collected():
    graph, x = pointwise(11)
    run = compiled(graph, [x])
    gone = weakref.ref(run)
    run([x])
    del run
    gc.collect()
    assert gone() is None
