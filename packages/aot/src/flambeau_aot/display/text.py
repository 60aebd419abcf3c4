"""Joint graphs as runnable Python text.

In: a `Joint` and, where it was cut, its halves. Out: text.
Invariant: the text of a graph is valid Python; each line names the class of its operator, and
whether its value crosses from forward to backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import is_operator
from flambeau_aot.interface import Classifier
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.classify import classify
from flambeau_aot.partition.split import backward_only


def show_graph(graph: fx.Graph, name: str = "graph") -> str:
    """One graph as a Python function, with the metadata of every value as a comment."""
    inputs = ", ".join(node.name for node in graph.nodes if node.op == "placeholder")
    lines = ["import operator", "import torch", "", f"def {name}({inputs}):"]
    lines.extend(f"    {_statement(node)}" for node in graph.nodes if node.op == "call_function")
    end = next((node for node in reversed(graph.nodes) if node.op == "output"), None)
    if end is not None:
        lines.append(f"    return {_argument(end.args[0])}")
    return "\n".join(lines) + "\n"


def show_joint(joint: Joint, saved: Iterable[fx.Node] = (), known: Classifier | None = None) -> str:
    """The joint graph with its cut: which part a line is in, its class, what is saved."""
    late = backward_only(joint)
    crossing = set(saved)
    inputs = ", ".join(node.name for node in (*joint.primals, *joint.late_inputs))
    lines = ["import operator", "import torch", "", f"def joint({inputs}):"]
    for node in joint.graph.nodes:
        if node.op != "call_function":
            continue
        marks = ["backward" if node in late else "forward", classify(node.target, known)]
        if node in crossing:
            marks.append("saved")
        lines.append(f"    {_statement(node)}  [{', '.join(marks)}]")
    lines.append(f"    return {_argument(joint.outputs)}, {_argument(joint.grads)}")
    return "\n".join(lines) + "\n"


def _statement(node: fx.Node) -> str:
    parts = [_argument(item) for item in node.args]
    parts.extend(f"{name}={_argument(item)}" for name, item in node.kwargs.items())
    return f"{node.name} = {_target(node.target)}({', '.join(parts)})  # {_metadata(node)}"


def _target(target: Any) -> str:
    if is_operator(target):
        return f"torch.ops.{target}"
    return f"{target.__module__.lstrip('_')}.{target.__name__}"


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, tuple):
        inner = ", ".join(_argument(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return "[" + ", ".join(_argument(item) for item in value) + "]"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if (isinstance(value, float) and value in (float("inf"), float("-inf"))) or value != value:
        return f"float({str(value)!r})"
    return repr(value)


def _metadata(node: fx.Node) -> str:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    name = str(value.dtype).removeprefix("torch.")
    return f"{name}{list(value.shape)} stride {list(value.stride())}"
