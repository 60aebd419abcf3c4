"""Deferred gradients: derivatives taken after a graph break through the graph before it.

In: the graph that a break ends, what leaves it, and the frames that go on. Out: where the graph has
to end instead. Invariant: the results of one graph are of one node of autograd, so that a
derivative by one of them, or what it keeps or what a hook on it is given, lacks what goes through
another result of that graph. Where the code that goes on names what asks for such derivatives, a
result is therefore read by the next graph, not by its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch import fx

from flambeau_capture.breaks import REASONS, BreakReport
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.values.tensors.graph_calls import version_of

_OF_TENSORS = frozenset({"retain_grad", "register_hook"})


def asks_for_derivatives(code: CodeType, namespace: Mapping[str, Any]) -> bool:
    """Whether code names `torch.autograd.grad`, `retain_grad`, `register_hook`, or `backward` with
    `inputs`."""
    names = {*code.co_names, *code.co_freevars}
    if names & _OF_TENSORS or any(namespace.get(name) is torch.autograd.grad for name in names):
        return True
    if "backward" in names and any(
        isinstance(constant, tuple) and "inputs" in constant for constant in code.co_consts
    ):
        return True
    module = "autograd" in names or any(namespace.get(name) is torch.autograd for name in names)
    return "grad" in names and module


def read_before_derivatives(
    graph: GraphBuilder, outputs: Sequence[fx.Node], codes: Sequence[tuple[CodeType, Any]]
) -> tuple[int, BreakReport] | None:
    """The step at which the graph first reads a result that another one depends on, where the code
    that goes on asks for derivatives; None where there is none."""
    leaving = {node for node in outputs if _has_history(node)}
    if not leaving or not any(asks_for_derivatives(*each) for each in codes):
        return None
    given = {node for node in graph.graph.nodes if node.op == "placeholder" and _has_history(node)}
    found = [
        step
        for node in leaving | given
        if _leads_to(graph, node, leaving - {node})
        and (step := first_reader(graph, node)) is not None
    ]
    if not found:
        return None
    why = "a result that another one depends on, where derivatives are asked for behind the graph"
    return min(found), BreakReport(REASONS["FB0007"], why, ())


def first_reader(graph: GraphBuilder, node: fx.Node) -> int | None:
    """The step at which the graph first reads what it has made of a value; None where it does not,
    or has not made it: it came in, and was not written to."""
    if node.op in ("call_function", "call_method"):
        return graph.first_reader(node)
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not version_of(value):
        return None
    steps = {user: graph.steps[user] for user in node.users if user in graph.steps}
    written = max((step for user, step in steps.items() if _writes(graph, user, node)), default=0)
    return min((step for step in steps.values() if step > written), default=None)


def _writes(graph: GraphBuilder, call: fx.Node, value: fx.Node) -> bool:
    """Whether a call writes to a value that it is given."""
    return value in _written(graph, call)


def _written(graph: GraphBuilder, call: fx.Node) -> set[Any]:
    """What a call writes to."""
    if call in graph.written_by_functions:
        return graph.written_by_functions[call]
    name = str(getattr(call.target, "__name__", call.target))
    in_place = name.endswith("_") and not name.endswith("__")
    return {call.args[0]} if in_place or name in ("setitem", "__setitem__") else set()


def _has_history(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf


def _leads_to(graph: GraphBuilder, node: fx.Node, others: set[fx.Node]) -> bool:
    """Whether one of the others is computed from a value, or is written to with it."""
    seen: set[Any] = {node}
    waiting: list[Any] = [node]
    while waiting:
        value = waiting.pop()
        for user in value.users:
            for reached in (user, *_written(graph, user)):
                if reached in others:
                    return True
                if reached not in seen and isinstance(reached, fx.Node):
                    seen.add(reached)
                    waiting.append(reached)
    return False
