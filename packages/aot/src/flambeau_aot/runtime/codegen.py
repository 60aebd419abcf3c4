"""Code generation of runtime functions, as Python text, and the boxed calling convention.

In: lines and the names they use; a graph module. Out: a function; for a graph one that takes a
list, empties it, and returns the outputs.
Invariant: values reach the text by name only. When a graph begins to run, the caller's list keeps
no tensor alive, and every value of the graph, an input included, is released after its last use.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import kernel_of, outside_autocast
from flambeau_aot.interface import Boxed
from flambeau_aot.runtime.check import AS_IS, Checked


def display(items: Sequence[str]) -> str:
    """The text of a tuple."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def defined(
    name: str, lines: Sequence[str], scope: dict[str, Any], life: object = None
) -> Callable[..., Any]:
    """The function that these lines define; tracebacks through it show them.

    What it uses goes with the function, or with `life` where that is given: at once, for a scope is
    in cycles (a function's class, what settles in it) that only the collector would find.
    """
    text = "\n".join(lines) + "\n"
    file = f"<flambeau {name} {id(scope):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope)
    made: Callable[..., Any] = scope.pop(name)
    weakref.finalize(made if life is None else life, _end, scope, file).atexit = False
    return made


def _end(scope: dict[str, Any], file: str) -> None:
    scope.clear()
    linecache.cache.pop(file, None)


def settling(call: Boxed, scope: dict[str, Any], name: str) -> Boxed:
    """A callable that takes itself out of the way when its first call has found nothing to do.

    It must be reached as `scope[name]`, which afterwards is what it called.
    """
    if not isinstance(call, Checked):
        return call
    checked = call

    def first(args: list[Any]) -> Sequence[Any]:
        outputs = checked(args)
        if checked.transparent:
            scope[name] = checked.call
        return outputs

    return first


# A kernel may lay its result out otherwise than torch's description of it says, by which the graph
# has a view of it; whether it shares memory with what it is of, nobody can know within the graph.
_WHATEVER_STRIDES = {torch.ops.aten.view.default: torch.ops.aten.reshape.default}


def boxed(gm: fx.GraphModule) -> Boxed:
    """Run a graph module as it is, operator by operator; its casts are operators of its own."""
    call = outside_autocast(defined("graph", *_program(gm)))
    setattr(call, AS_IS, True)
    return call


class _Spelling:
    """Values as Python, and what their names stand for."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self._known: dict[int, str] = {}

    def named(self, value: Any, kind: str) -> str:
        """A name for a value that has no text of its own; one for each object."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"{kind}_{len(self.scope)}"
            self.scope[name] = value
        return name

    def text(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return f"v_{value.name}"
        if value is None or value is Ellipsis or type(value) in (bool, int, str):
            return repr(value)
        if type(value) is tuple:
            return display(list(map(self.text, value)))
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, dict):
            items = (f"{key!r}: {self.text(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        return self.named(value, "constant")


def _program(gm: fx.GraphModule) -> tuple[list[str], dict[str, Any]]:
    spelling = _Spelling()
    scope, text, named = spelling.scope, spelling.text, spelling.named
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
