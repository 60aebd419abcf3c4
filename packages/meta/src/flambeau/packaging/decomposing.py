"""Exported graphs written in ATen operators, or in what a table makes of them.

In: an `Exported` and decompositions. Out: one that does the same, and what it reads and writes.
Invariant: no operator of the new graph writes to memory but `copy_` at its end, to an argument or
a buffer, before views of arguments are made; what cannot be said so is an `ExportError`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, getitem
from typing import TYPE_CHECKING, Any

import flambeau_aot
import torch
from flambeau_aot.runtime.check import extent
from flambeau_aot.runtime_plan import (
    FromGraph,
    IsInput,
    LiteralResult,
    RuntimePlan,
    SameResult,
    View,
)
from flambeau_capture import ExportError
from flambeau_capture.exports.exported_names import TABLES, named_tensors, place
from flambeau_capture.graph.functions import derivative_call
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.packaging.cpp_program import beyond

if TYPE_CHECKING:
    from flambeau.packaging.export import Exported

aten = torch.ops.aten


@dataclass(frozen=True)
class GraphSignature:
    """What a graph reads, returns and writes, by name.

    user_inputs: the tensors among the arguments. user_outputs: the results; None for what is no
    tensor. parameters_to_mutate, buffers_to_mutate, user_inputs_to_mutate: those that a call writes
    to.
    """

    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    non_persistent_buffers: tuple[str, ...]
    user_inputs: tuple[str, ...]
    user_outputs: tuple[str | None, ...]
    parameters_to_mutate: tuple[str, ...]
    buffers_to_mutate: tuple[str, ...]
    user_inputs_to_mutate: tuple[str, ...]


def signature_of(decomposed: Exported) -> GraphSignature:
    """The signature of a graph that writes by `copy_` alone."""
    graph_module = decomposed.graph_module
    state = list(named_tensors(graph_module))
    parameters = [name for name, each, _ in state if isinstance(each, torch.nn.Parameter)]
    buffers = [name for name, *_ in state if name not in parameters]
    nodes = graph_module.graph.nodes
    inputs = [node.name for node in nodes if node.op == "placeholder"]
    copies = [node.args[0] for node in nodes if node.target is aten.copy_.default]
    written = {str(node.target) if node.op == "get_attr" else node.name for node in copies}
    (returned,) = graph_module.graph.output_node().args
    return GraphSignature(
        tuple(parameters),
        tuple(buffers),
        tuple(name for name, _, kept in state if not kept),
        tuple(inputs),
        tuple(each.name if isinstance(each, fx.Node) else None for each in returned),  # type: ignore[union-attr]
        *(tuple(filter(written.__contains__, names)) for names in (parameters, buffers, inputs)),
    )


def decomposed(exported: Exported, table: Mapping[Any, Any]) -> Exported:
    """The same program in ATen operators, those of `table` decomposed by its functions."""
    source = exported.graph_module
    examples = [node.meta["val"] for node in source.graph.find_nodes(op="placeholder")]
    made: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, inputs: Any, info: Any) -> Any:
        made.append(gm)
        return flambeau_aot.boxed(gm)

    with torch.no_grad(), compat.without_autocast():
        stored = flambeau_aot.compile(
            _with_grad(source), examples, keep, decompositions=table
        ).stored
    assert stored is not None
    root = torch.nn.Module()
    root.__dict__.update({table: copy.copy(vars(source)[table]) for table in TABLES})
    graph = _Builder(source, root, made[0], stored.plan, stored.constants).graph
    graph.lint()
    graph_module = fx.GraphModule(root, graph, "Exported")
    graph_module.__dict__.update({table: vars(root)[table] for table in TABLES})
    return replace(exported, graph_module=graph_module, is_inference=True)


def _with_grad(source: fx.GraphModule) -> fx.GraphModule:
    """A copy that records, where the program requests derivatives of what it computes."""
    if not source.graph.find_nodes(op="call_function", target=derivative_call):
        return source
    graph = fx.Graph()
    graph.call_function(torch._C._set_grad_enabled, (True,))
    results = graph.graph_copy(source.graph, {})
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output(results)
    return fx.GraphModule(source, graph)


def refuse_shared(
    graph: fx.Graph, holder: torch.nn.Module, tensors: Sequence[torch.Tensor]
) -> None:
    """Raises ValueError where a tensor that the call writes to, when all is read, shares memory
    with another that the graph reads, from the arguments or from its holder."""
    copies = graph.find_nodes(op="call_function", target=aten.copy_.default)
    if not copies or any(isinstance(each, compat.TRACED) for each in tensors):
        return
    known: dict[Any, Any] = dict(zip(graph.find_nodes(op="placeholder"), tensors, strict=True))
    for node in graph.find_nodes(op="get_attr"):
        value = attrgetter(str(node.target))(holder)
        if isinstance(value, torch.Tensor):
            known[node] = value
    places = {node: extent(each) for node, each in known.items()}
    for written in (each.args[0] for each in copies):
        device, start, end = places[written]
        for node, (other, begin, stop) in places.items():
            if node is not written and other == device and begin < end and start < stop:
                raise ValueError(
                    f"{written} is written to and shares memory with {node}, which the decomposed "
                    "program was not made for: give it memory of its own, by clone()"
                )


class _Builder:
    """The graph of a program for inference: the traced one, within what its plan does around it."""

    def __init__(
        self,
        source: fx.GraphModule,
        root: torch.nn.Module,
        traced: fx.GraphModule,
        plan: RuntimePlan,
        constants: Sequence[torch.Tensor],
    ) -> None:
        self.graph, self.root, self.plan = fx.Graph(), root, plan
        self.tracer = fx.proxy.GraphAppendingTracer(self.graph)
        why = beyond(plan, "updates", "grad_mode_after")
        if plan.inputs.merged or plan.inputs.duplicates:
            why = "arguments that share memory"
        if why:
            raise ExportError(f"the program does what no graph without writes says: {why}")
        placeholders = source.graph.find_nodes(op="placeholder")
        given = [self.graph.node_copy(node) for node in placeholders]
        self.primals = self._bound(source, constants) + [given[at] for at in plan.inputs.primals]
        self.symbols = [self._symbol(given[each.position], each) for each in plan.inputs.symbols]
        inputs = traced.graph.find_nodes(op="placeholder")
        known = dict(zip(inputs, self.primals + self.symbols, strict=True))
        for node, own in known.items():
            own.meta.setdefault("val", node.meta["val"])
        outputs = self.graph.graph_copy(traced.graph, known)
        self.outputs: Sequence[fx.Node] = outputs  # type: ignore[assignment]
        for update in plan.updates:
            to = self.primals[update.primal]
            self.graph.call_function(aten.copy_.default, (to, self.outputs[update.output]))
        results: list[Any] = []
        for each in plan.results:
            same = results[each.result] if isinstance(each, SameResult) else self._result(each)
            results.append(same)
        self.graph.output(tuple(results))

    def _bound(self, source: fx.GraphModule, constants: Sequence[torch.Tensor]) -> list[fx.Node]:
        """Nodes that read the tensors which the program is bound to, under their names."""
        own = {id(tensor): name for name, tensor, _ in named_tensors(self.root)}
        found = [*flambeau_aot.static_tensors(source), *constants]
        for number, tensor in enumerate(found):
            if id(tensor) not in own:
                name = f"_constant{number}"
                while hasattr(self.root, name):
                    name += "_"
                own[id(tensor)] = name
                place(self.root, name, tensor, state=False)
        return [self.graph.get_attr(own[id(tensor)]) for tensor in found]

    def _symbol(self, node: fx.Node, where: Any) -> fx.Node:
        if where.dim is None:
            raise ExportError("a number as an argument is left open")
        read = aten.sym_stride.int if where.stride else aten.sym_size.int
        return self.graph.call_function(read, (node, where.dim))

    def _result(self, item: Any) -> Any:
        match item:
            case FromGraph(output=at, leaf=False):
                return self.outputs[at]
            case IsInput(primal=at):
                return self.primals[at]
            case LiteralResult(value=value) if not isinstance(value, torch.Tensor):
                return value
            case View(source=saved, leaf=False, numbers=()):
                base = self.primals if saved.kind == "input" else self.outputs
                return self._view(base[saved.index], item)
        raise ExportError(f"a result that no graph without writes gives ({type(item).__name__})")

    def _view(self, node: fx.Node, view: View) -> fx.Node:
        call = self.graph.call_function
        sizes: list[fx.Proxy] = []
        if any(step.sized is not None for step in view.steps):
            dims = range(node.meta["val"].dim())
            own = (call(aten.sym_size.int, (node, dim)) for dim in dims)
            sizes = [fx.Proxy(each, self.tracer) for each in (*self.symbols, *own)]
        for step in view.steps:
            args, kwargs = step.args, step.kwargs
            if step.sized is not None:
                args, kwargs = fx.node.map_aggregate(step.sized(sizes), _node_of)
            node = call(step.func, (node, *args), kwargs)
            if step.index is not None:
                node = call(getitem, (node, step.index))
        return node


def _node_of(value: Any) -> Any:
    return value.node if isinstance(value, fx.Proxy) else value
