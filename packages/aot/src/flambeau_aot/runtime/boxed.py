"""Boxed calling convention.

What comes in: a graph module. What goes out: a callable that takes one list, empties it, and
returns the graph's outputs.
Invariant: when the graph begins to run, the caller's list holds no tensor alive, and every value
of the graph, an input included, is let go after its last use.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import kernel_of
from flambeau_aot.info import Boxed
from flambeau_aot.runtime.check import AS_IS
from flambeau_aot.runtime.codegen import defined, display

# A kernel may lay its result out otherwise than torch's description of it says, by which the graph
# has a view of it; whether it shares memory with what it is of, nobody can tell within the graph.
_WHATEVER_STRIDES = {torch.ops.aten.view.default: torch.ops.aten.reshape.default}


def boxed(gm: fx.GraphModule) -> Boxed:
    """Run a graph module as it is, operator by operator."""
    call = defined("graph", *_program(gm))
    setattr(call, AS_IS, True)
    return call


def _program(gm: fx.GraphModule) -> tuple[list[str], dict[str, Any]]:
    scope: dict[str, Any] = {}
    known: dict[Any, str] = {}

    def named(value: Any, kind: str) -> str:
        """A name for a value that has no text of its own; one for each object."""
        name = known.get(id(value))
        if name is None:
            name = known[id(value)] = f"{kind}_{len(scope)}"
            scope[name] = value
        return name

    def text(value: Any) -> str:
        if isinstance(value, fx.Node):
            return f"v_{value.name}"
        if value is None or value is Ellipsis or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is tuple:
            return display([text(item) for item in value])
        if isinstance(value, list):
            return f"[{', '.join(text(item) for item in value)}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {text(item)}' for key, item in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
        return named(value, "constant")

    inputs = [f"v_{node.name}" for node in gm.graph.nodes if node.op == "placeholder"]
    lines = ["def graph(args):"]
    if inputs:
        lines.append(f"    {display(inputs)} = args")
    lines.append("    args.clear()")
    last = _last_uses(gm.graph)
    for node in gm.graph.nodes:
        given = [text(item) for item in node.args]
        given += [f"{name}={text(item)}" for name, item in node.kwargs.items()]
        if node.op == "output":
            lines.append(f"    return {text(tuple(node.args[0]))}")  # type: ignore[arg-type]
            break
        if node.op == "call_function":
            target = _WHATEVER_STRIDES.get(node.target, node.target)
            call = f"{named(kernel_of(target), 'call')}({', '.join(given)})"
        elif node.op == "call_method":
            call = f"{given[0]}.{node.target}({', '.join(given[1:])})"
        elif node.op == "get_attr":
            call = f"self.{node.target}"
            scope["self"] = gm
        elif node.op == "call_module":
            call = f"self.get_submodule({str(node.target)!r})({', '.join(given)})"
            scope["self"] = gm
        else:
            call = ""
        if call:
            lines.append(f"    v_{node.name} = {call}")
        if node in last:
            lines.append(f"    del {', '.join(f'v_{item.name}' for item in last[node])}")
    return lines, scope


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """By node, the values that nothing after it reads; an unread value is let go at once."""
    found: dict[fx.Node, list[fx.Node]] = {}
    seen: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output":
            seen.update(node.all_input_nodes)
            continue
        for value in (node, *node.all_input_nodes):
            if value not in seen:
                seen.add(value)
                found.setdefault(node, []).append(value)
    return found
