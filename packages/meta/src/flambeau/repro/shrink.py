"""Delta debugging on a failing graph.

In: a graph, inputs, a test. Out: a smaller graph and inputs that fail in the same way. Invariant:
every graph that is kept was itself seen to fail; each round leaves fewer nodes, or is the last.

Delta debugging (Zeller and Hildebrandt 2002) with moves that fit graphs: fewer outputs, an earlier
end, values in place of what computes them, a node's operand in place of the node.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau.events.records import operations
from flambeau.repro.check import GraphFailure
from flambeau.testing.comparison import first_bad
from flambeau.testing.isolated_run import copied, copied_graph

Test = Callable[[fx.GraphModule, Sequence[Any]], GraphFailure | None]


@dataclass
class Shrunk:
    """A graph that fails, its inputs, how it fails, and how many graphs were tried for it."""

    gm: fx.GraphModule
    inputs: list[Any]
    failure: GraphFailure
    tests: int = 0
    steps: list[str] = field(default_factory=list)

    @property
    def operations(self) -> int:
        """Calls in the graph."""
        return operations(self.gm)


def shrink(
    gm: fx.GraphModule, inputs: Sequence[Any], test: Test, most_tests: int = 400
) -> Shrunk | None:
    """The smallest graph found that fails as `gm` does; None where `gm` does not fail.

    A failure is the same where its kind is: the class of an exception, or a wrong result.
    """
    given = list(inputs)
    failure = test(gm, given)
    if failure is None:
        return None
    state = Shrunk(gm, given, failure, 1)
    progress = True
    while progress and state.tests < most_tests:
        before = len(list(state.gm.graph.nodes))
        for name, move in MOVES:
            for candidate in move(state):
                if state.tests >= most_tests:
                    break
                state.tests += 1
                found = test(candidate.gm, candidate.inputs)
                if found is not None and found.kind == failure.kind:
                    state.gm, state.inputs, state.failure = candidate.gm, candidate.inputs, found
                    state.steps.append(f"{name}: {state.operations} operations")
                    candidate.kept = True
        progress = len(list(state.gm.graph.nodes)) < before
    return state


def first_bad_node(gm: fx.GraphModule, inputs: Sequence[Any], test: Test) -> fx.Node | None:
    """The first node of `gm` whose value alone, as the only output, goes wrong."""
    values = _values(gm, inputs)
    tensors = [n for n in _calls(gm) if isinstance(values.get(n), torch.Tensor)]

    def is_bad(count: int) -> bool:
        cut = _ending_at(gm, inputs, tensors[:count])
        return test(cut.gm, cut.inputs) is not None

    number = first_bad(len(tensors), is_bad)
    return None if number is None else tensors[number - 1]


@dataclass
class ShrinkCandidate:
    """A smaller graph to try; `kept` is set when it failed and was taken over."""

    gm: fx.GraphModule
    inputs: list[Any]
    kept: bool = False


class _ValueKeeper(fx.Interpreter):
    """Keeps a copy of every value as it was when it was made."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.kept: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.kept[n] = value.detach().clone() if isinstance(value, torch.Tensor) else value
        return value


def _values(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    run = _ValueKeeper(gm)
    run.run(*copied(list(inputs)))
    return run.kept


def _fewer_outputs(state: Shrunk) -> Iterator[ShrinkCandidate]:
    outputs = _outputs(state.gm.graph)
    if len(outputs) < 2:
        return
    for place in range(len(outputs)):
        candidate = _ending_at(state.gm, state.inputs, [outputs[place]])
        yield candidate
        if candidate.kept:
            return
    size = len(outputs) // 2
    while size >= 1:  # several are needed together: leave out as many as will go
        for start in range(0, len(outputs), size):
            rest = [*outputs[:start], *outputs[start + size :]]
            if rest:
                candidate = _ending_at(state.gm, state.inputs, rest)
                yield candidate
                if candidate.kept:
                    return
        size //= 2


def _earlier_end(state: Shrunk) -> Iterator[ShrinkCandidate]:
    values = _values(state.gm, state.inputs)
    nodes = [n for n in _calls(state.gm) if isinstance(values.get(n), torch.Tensor)]
    low, high = -1, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        candidate = _ending_at(state.gm, state.inputs, [nodes[middle]])
        yield candidate
        if candidate.kept:
            return  # nodes are others now; the next round goes on from there
        low = middle


def _values_for_nodes(state: Shrunk) -> Iterator[ShrinkCandidate]:
    size = max(1, operations(state.gm) // 2)
    while size >= 1:
        start = 0
        while True:
            nodes = [n for n in state.gm.graph.nodes if n.op in COMPUTED]
            if start >= len(nodes):
                break
            candidate = _replaced(state, nodes[start : start + size])
            if candidate is None:
                start += size
                continue
            yield candidate
            start += 0 if candidate.kept else size
        size //= 2


def _operand_for_node(state: Shrunk) -> Iterator[ShrinkCandidate]:
    place = 0
    while True:
        nodes = _calls(state.gm)
        if place >= len(nodes):
            return
        node, values = nodes[place], _values(state.gm, state.inputs)
        for source in node.all_input_nodes:
            if _alike(values.get(source), values.get(node)):
                candidate = _bypassed(state, node, source)
                yield candidate
                if candidate.kept:
                    break
        else:
            place += 1


MOVES: tuple[tuple[str, Callable[[Shrunk], Iterator[ShrinkCandidate]]], ...] = (
    ("fewer outputs", _fewer_outputs),
    ("an earlier end", _earlier_end),
    ("values for nodes", _values_for_nodes),
    ("an operand for its node", _operand_for_node),
)
COMPUTED = ("call_function", "call_method", "get_attr")


def _finished(gm: fx.GraphModule, inputs: Sequence[Any]) -> ShrinkCandidate:
    """Drop what nothing reads, inputs too."""
    for node in reversed(gm.graph.nodes):
        if node.op in COMPUTED and not node.users:
            gm.graph.erase_node(node)
    left: list[Any] = []
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for node, value in zip(places, inputs, strict=True):
        if node.users:
            left.append(value)
        else:
            gm.graph.erase_node(node)
    gm.graph.lint()
    made = fx.GraphModule(gm, copy.copy(gm.graph), class_name=type(gm).__name__)
    return ShrinkCandidate(made, left)


def _ending_at(
    gm: fx.GraphModule, inputs: Sequence[Any], outputs: Sequence[fx.Node]
) -> ShrinkCandidate:
    where: dict[fx.Node, fx.Node] = {}
    made = copied_graph(gm, where)
    (output,) = made.graph.find_nodes(op="output")
    output.args = (tuple(where[node] for node in outputs),)
    return _finished(made, inputs)


def _replaced(state: Shrunk, nodes: Sequence[fx.Node]) -> ShrinkCandidate | None:
    """Values in place of nodes, as new inputs; None where none of them is a tensor."""
    values = _values(state.gm, state.inputs)
    chosen = [n for n in nodes if isinstance(values.get(n), torch.Tensor)]
    if not chosen:
        return None
    where: dict[fx.Node, fx.Node] = {}
    made = copied_graph(state.gm, where)
    first = next(iter(made.graph.nodes))
    inputs = []
    for node in chosen:
        with made.graph.inserting_before(first):
            new = made.graph.placeholder(f"v_{node.name}")
        new.meta.update({k: v for k, v in node.meta.items() if k == "stack_trace"})
        old = where[node]
        old.replace_all_uses_with(new)
        value = values[node]
        floating = value.is_floating_point() or value.is_complex()
        wants = floating and any(getattr(each, "requires_grad", False) for each in state.inputs)
        inputs.append(value.requires_grad_(wants))
    return _finished(made, [*inputs, *state.inputs])


def _bypassed(state: Shrunk, node: fx.Node, source: fx.Node) -> ShrinkCandidate:
    where: dict[fx.Node, fx.Node] = {}
    made = copied_graph(state.gm, where)
    where[node].replace_all_uses_with(where[source])
    return _finished(made, state.inputs)


def _outputs(graph: fx.Graph) -> list[fx.Node]:
    (output,) = graph.find_nodes(op="output")
    found: list[fx.Node] = output.all_input_nodes
    return found


def _calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op.startswith("call_")]


def _alike(one: Any, other: Any) -> bool:
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return both and (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
