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

from flambeau.repro.check import GraphFailure
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
        return _operations(self.gm.graph)


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
    nodes = [n for n in gm.graph.nodes if n.op in ("call_function", "call_method")]
    values = _values(gm, inputs)
    tensors = [n for n in nodes if isinstance(values.get(n), torch.Tensor)]
    low, high = -1, len(tensors)
    while high - low > 1:
        middle = (low + high) // 2
        cut = _ending_at(gm, inputs, tensors[: middle + 1])
        if test(cut.gm, cut.inputs) is not None:
            high = middle
        else:
            low = middle
    return tensors[high] if high < len(tensors) else None


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
        candidate = _with_outputs(state, [outputs[place]])
        yield candidate
        if candidate.kept:
            return
    size = len(outputs) // 2
    while size >= 1:  # several are needed together: leave out as many as will go
        for start in range(0, len(outputs), size):
            rest = [*outputs[:start], *outputs[start + size :]]
            if rest:
                candidate = _with_outputs(state, rest)
                yield candidate
                if candidate.kept:
                    return
        size //= 2


def _earlier_end(state: Shrunk) -> Iterator[ShrinkCandidate]:
    values = _values(state.gm, state.inputs)
    nodes = [n for n in state.gm.graph.nodes if isinstance(values.get(n), torch.Tensor)]
    nodes = [n for n in nodes if n.op in ("call_function", "call_method")]
    low, high = -1, len(nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        candidate = _with_outputs(state, [nodes[middle]])
        yield candidate
        if candidate.kept:
            return  # nodes are others now; the next round goes on from there
        low = middle


def _values_for_nodes(state: Shrunk) -> Iterator[ShrinkCandidate]:
    size = max(1, _operations(state.gm.graph) // 2)
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
        nodes = [n for n in state.gm.graph.nodes if n.op in ("call_function", "call_method")]
        if place >= len(nodes):
            return
        node, kept = nodes[place], False
        values = _values(state.gm, state.inputs)
        for source in node.all_input_nodes:
            if _alike(values.get(source), values.get(node)):
                candidate = _bypassed(state, node, source)
                yield candidate
                kept = candidate.kept
                if kept:
                    break
        place += 0 if kept else 1


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


def _with_outputs(state: Shrunk, outputs: Sequence[fx.Node]) -> ShrinkCandidate:
    return _ending_at(state.gm, state.inputs, outputs)


def _ending_at(
    gm: fx.GraphModule, inputs: Sequence[Any], outputs: Sequence[fx.Node]
) -> ShrinkCandidate:
    made, where = copied_graph(gm)
    _set_outputs(made.graph, [where[node] for node in outputs])
    return _finished(made, inputs)


def _replaced(state: Shrunk, nodes: Sequence[fx.Node]) -> ShrinkCandidate | None:
    """Values in place of nodes, as new inputs; None where none of them is a tensor."""
    values = _values(state.gm, state.inputs)
    chosen = [n for n in nodes if isinstance(values.get(n), torch.Tensor)]
    if not chosen:
        return None
    made, where = copied_graph(state.gm)
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
        wants = floating and any(_requires_grad(each) for each in state.inputs)
        inputs.append(value.requires_grad_(wants))
    return _finished(made, [*inputs, *state.inputs])


def _bypassed(state: Shrunk, node: fx.Node, source: fx.Node) -> ShrinkCandidate:
    made, where = copied_graph(state.gm)
    where[node].replace_all_uses_with(where[source])
    return _finished(made, state.inputs)


def _outputs(graph: fx.Graph) -> list[fx.Node]:
    output = next(iter(reversed(graph.nodes)))
    found: list[fx.Node] = []
    fx.map_arg(output.args, found.append)
    return list(dict.fromkeys(found))


def _set_outputs(graph: fx.Graph, outputs: Sequence[fx.Node]) -> None:
    output = next(iter(reversed(graph.nodes)))
    output.args = (tuple(outputs),)


def _operations(graph: fx.Graph) -> int:
    return sum(node.op in ("call_function", "call_method") for node in graph.nodes)


def _alike(one: Any, other: Any) -> bool:
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return both and (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
