"""Canonical text of a captured graph, the same in every process.

In: a captured `fx.GraphModule`. Out: one line a node, values by number; or `CannotKey`. Invariant:
two graphs with one text, on inputs of one metadata, compile to the same (`open_sizes` says what is
known of sizes that are left open); what has no text that says all of it (a function of the program,
an operator of somebody else's) has no key.
"""

from __future__ import annotations

import builtins
import math
import operator
import sys
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from flambeau._torch_compat import is_overload

#: operators whose meaning the versions in a key fix
NAMESPACES = frozenset({"aten", "prim", "prims", "flambeau_prims"})
#: packages whose functions they fix
PACKAGES = frozenset(
    {"torch", "operator", "_operator", "math", "builtins", "flambeau_capture", "flambeau_inductor"}
)
#: where functions of C code are found that do not say where they are from
PLACES: tuple[Any, ...] = (
    torch,
    torch.nn.functional,
    torch.Tensor,
    torch.linalg,
    torch.fft,
    torch.special,
    operator,
    math,
    builtins,
    torch.autograd,
    torch.ops.aten,
)
PLAIN = (bool, int, float, complex, str, type(None), type(Ellipsis))
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class CannotKey(Exception):
    """A graph that the disk cache leaves alone, with what it holds."""


def text_of(gm: fx.GraphModule) -> tuple[str, list[torch.Tensor]]:
    """The graph's text, and the tensors it reads as attributes, each once, in order."""
    tensors: list[torch.Tensor] = []
    return "\n".join(_lines(gm, tensors)), tensors


def _lines(gm: fx.GraphModule, tensors: list[torch.Tensor]) -> list[str]:
    numbers: dict[fx.Node, int] = {}
    lines: list[str] = []
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            lines.append(f"%{numbers[node]} = input")
            continue
        if node.op == "get_attr":
            lines.append(f"%{numbers[node]} = {_attribute(gm, str(node.target), tensors)}")
            continue
        if node.op == "call_module":
            raise CannotKey(f"a call of the module {node.target}")
        called = str(node.target) if isinstance(node.target, str) else function(node.target)
        given = [value(item, numbers) for item in node.args]
        given += [f"{name}={value(item, numbers)}" for name, item in node.kwargs.items()]
        lines.append(f"%{numbers[node]} = {node.op} {called}({', '.join(given)})")
    return lines


def _attribute(gm: fx.GraphModule, target: str, tensors: list[torch.Tensor]) -> str:
    found = operator.attrgetter(target)(gm)
    if isinstance(found, fx.GraphModule):
        body = "\n  ".join(_lines(found, tensors))
        return f"graph {{\n  {body}\n}}"
    if not isinstance(found, torch.Tensor):
        raise CannotKey(f"the attribute {target}, a {type(found).__name__}")
    for place, known in enumerate(tensors):
        if known is found:
            return f"tensor {place}"
    tensors.append(found)
    return f"tensor {len(tensors) - 1}"


def value(item: Any, numbers: Mapping[fx.Node, int]) -> str:
    """An argument of a node. Raises CannotKey."""
    if isinstance(item, fx.Node):
        return f"%{numbers[item]}"
    if type(item) in PLAIN or isinstance(item, NAMED):
        return repr(item)
    if isinstance(item, (tuple, list, torch.Size)):
        inside = ", ".join(value(each, numbers) for each in item)
        kind = "list" if isinstance(item, list) else "tuple"
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            raise CannotKey(f"an argument of the class {type(item).__name__}")
        return f"{kind}({inside})"
    if isinstance(item, dict):
        pairs = (f"{value(k, numbers)}: {value(v, numbers)}" for k, v in item.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(item, slice):
        parts = (value(each, numbers) for each in (item.start, item.stop, item.step))
        return f"slice({', '.join(parts)})"
    if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise CannotKey("an open size inside an argument")
    if callable(item) or is_overload(item):
        return function(item)
    raise CannotKey(f"an argument of the class {type(item).__name__}")


def function(target: Any) -> str:
    """A function's name, under which the same versions have the same function."""
    if is_overload(target):
        if str(target).partition(".")[0] not in NAMESPACES:
            raise CannotKey(f"the operator {target}, which no version of ours or torch's fixes")
        return f"torch.ops.{target}"
    module: Any = getattr(target, "__module__", None)
    name: Any = getattr(target, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        root = module.partition(".")[0]
        if root in PACKAGES and _found(sys.modules.get(module), name) is target:
            return f"{module}.{name}"
    plain = str(getattr(target, "__name__", ""))
    for place in PLACES if plain else ():
        if getattr(place, plain, None) is target:
            return f"{_called(place)}.{plain}"
    raise CannotKey(f"the function {module}.{name or plain or target!r}, which may change")


def _found(place: Any, name: str) -> Any:
    for part in name.split("."):
        place = getattr(place, part, None)
    return place


def _called(place: Any) -> str:
    if isinstance(place, types.ModuleType):
        return place.__name__
    return str(getattr(place, "__qualname__", place))
