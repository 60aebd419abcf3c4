"""The moves of delta debugging on a failing graph.

In: a graph, inputs, a test. Out: a smaller graph and inputs that fail in the same way. Invariant: a
move leaves fewer outputs, or fewer nodes that compute: an earlier end, values in place of what
computes them, a node's operand in place of the node.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from flambeau.events.records import operations
from flambeau.repro.check import GraphFailure, values_of
from flambeau.repro.delta import Search
from flambeau.testing.comparison import copied_graph, first_bad

Test = Callable[[fx.GraphModule, Sequence[Any]], GraphFailure | None]


@dataclass(frozen=True)
class Shrunk:
    """A graph that fails, its inputs, how it fails, and how many graphs were tried for it."""

    gm: fx.GraphModule
    inputs: Sequence[Any]
    failure: GraphFailure
    tests: int

    @property
    def operations(self) -> int:
        """Calls in the graph."""
        return operations(self.gm)


class Case(NamedTuple):
    """A graph to try, and its inputs."""

    gm: fx.GraphModule
    inputs: Sequence[Any]


GraphSearch = Search[Case, GraphFailure]


def shrink(
    gm: fx.GraphModule, inputs: Sequence[Any], test: Test, most_tests: int = 400
) -> Shrunk | None:
    """The smallest graph found that fails as `gm` does; None where `gm` does not fail.

    A failure is the same where its kind is: the class of an exception, or a wrong result.
    """
    case = Case(gm, list(inputs))
    failure = test(*case)
    if failure is None:
        return None

    def same(candidate: Case) -> GraphFailure | None:
        found = test(*candidate)
        return found if found is not None and found.kind == failure.kind else None

    search = Search(case, failure, same, most_tests)
    search.run((_fewer_outputs, _earlier_end, _values_for_nodes, _operand_for_node))
    return Shrunk(*search.best, search.found, search.tests)


def first_bad_node(gm: fx.GraphModule, inputs: Sequence[Any], test: Test) -> fx.Node | None:
    """The first node of `gm` whose value alone, as the only output, goes wrong."""
    case = Case(gm, inputs)
    tensors = _computed_tensors(case)
    number = first_bad(
        len(tensors), lambda count: test(*_ending_at(case, tensors[:count])) is not None
    )
    return None if number is None else tensors[number - 1]


def _fewer_outputs(search: GraphSearch) -> None:
    (output,) = search.best.gm.graph.find_nodes(op="output")
    outputs = output.all_input_nodes
    if len(outputs) < 2 or any(search.takes(_ending_at(search.best, [n])) for n in outputs):
        return
    size = len(outputs) // 2
    while size >= 1:  # several are needed together: leave out as many as will go
        for start in range(0, len(outputs), size):
            rest = [*outputs[:start], *outputs[start + size :]]
            if rest and search.takes(_ending_at(search.best, rest)):
                return
        size //= 2


def _earlier_end(search: GraphSearch) -> None:
    nodes = _computed_tensors(search.best)
    low, high = -1, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if search.takes(_ending_at(search.best, [nodes[middle]])):
            return  # nodes are others now; the next round goes on from there
        low = middle


def _values_for_nodes(search: GraphSearch) -> None:
    size = max(1, operations(search.best.gm) // 2)
    while size >= 1:
        start = 0
        while nodes := [n for n in search.best.gm.graph.nodes if n.op in COMPUTED][start:]:
            candidate = _replaced(search.best, nodes[:size])
            if candidate is None or not search.takes(candidate):
                start += size
        size //= 2


def _operand_for_node(search: GraphSearch) -> None:
    place = 0
    while place < len(nodes := _calls(search.best.gm)):
        node, values = nodes[place], values_of(*search.best)
        alike = [n for n in node.all_input_nodes if _alike(values.get(n), values.get(node))]
        if not any(search.takes(_bypassed(search.best, node, source)) for source in alike):
            place += 1


COMPUTED = ("call_function", "call_method", "get_attr")


def _finished(gm: fx.GraphModule, inputs: Sequence[Any]) -> Case:
    """Drop what nothing reads, inputs too."""
    for node in reversed(gm.graph.nodes):
        if node.op in COMPUTED and not node.users:
            gm.graph.erase_node(node)
    left: list[Any] = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if node.users:
            left.append(value)
        else:
            gm.graph.erase_node(node)
    gm.graph.lint()
    return Case(fx.GraphModule(gm, copy.copy(gm.graph), class_name=type(gm).__name__), left)


def _ending_at(case: Case, outputs: Sequence[fx.Node]) -> Case:
    where: dict[fx.Node, fx.Node] = {}
    made = copied_graph(case.gm, where)
    (output,) = made.graph.find_nodes(op="output")
    output.args = (tuple(where[node] for node in outputs),)
    return _finished(made, case.inputs)


def _replaced(case: Case, nodes: Sequence[fx.Node]) -> Case | None:
    """Values in place of nodes, as new inputs; None where none of them is a tensor."""
    values = values_of(*case)
    chosen = [n for n in nodes if isinstance(values.get(n), torch.Tensor)]
    if not chosen:
        return None
    where: dict[fx.Node, fx.Node] = {}
    made = copied_graph(case.gm, where)
    first = next(iter(made.graph.nodes))
    inputs = []
    for node in chosen:
        with made.graph.inserting_before(first):
            new = made.graph.placeholder(f"v_{node.name}")
        new.meta.update({k: v for k, v in node.meta.items() if k == "stack_trace"})
        where[node].replace_all_uses_with(new)
        value = values[node]
        floating = value.is_floating_point() or value.is_complex()
        wants = floating and any(getattr(each, "requires_grad", False) for each in case.inputs)
        inputs.append(value.requires_grad_(wants))
    return _finished(made, [*inputs, *case.inputs])


def _bypassed(case: Case, node: fx.Node, source: fx.Node) -> Case:
    where: dict[fx.Node, fx.Node] = {}
    made = copied_graph(case.gm, where)
    where[node].replace_all_uses_with(where[source])
    return _finished(made, case.inputs)


def _calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op.startswith("call_")]


def _computed_tensors(case: Case) -> list[fx.Node]:
    values = values_of(*case)
    return [node for node in _calls(case.gm) if isinstance(values.get(node), torch.Tensor)]


def _alike(one: Any, other: Any) -> bool:
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return both and (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
