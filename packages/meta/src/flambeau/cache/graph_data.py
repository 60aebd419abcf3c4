"""A captured graph as data, the same in every process, and a graph again.

In: a captured `fx.GraphModule`; or data, tensors and names. Out: a list of nodes by number, or
`CannotKey`; a graph. Invariant: two graphs with one text, on inputs of one metadata, compile to the
same (`open_sizes` says what is known of sizes that are left open); what has no form that says all
of it (a function of the program, an operator of somebody else's) has no key and is in no file; a
name that is not torch's or Python's arithmetic is refused when it is read.
"""

from __future__ import annotations

import builtins
import importlib
import math
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from flambeau_aot import CannotSave, decoded, encoded
from flambeau_capture.exports import exported_names
from torch import fx

from flambeau._torch_compat import is_overload

#: operators whose meaning the versions in a key fix
NAMESPACES = frozenset({"aten", "prim", "prims", "flambeau_prims"})
#: packages whose functions they fix
PACKAGES = frozenset(
    {"torch", "operator", "_operator", "math", "builtins", "flambeau_capture", "flambeau_inductor"}
)
#: built-in functions that a graph out of a file may call
PYTHON = frozenset({"max", "min", "abs", "sum", "len", "pow", "round", "int", "float", "bool"})
GETATTR = "builtins.getattr"
#: where functions of C code are found that do not say where they are from
PLACES: Mapping[str, Any] = {
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch.Tensor": torch.Tensor,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.special": torch.special,
    "operator": operator,
    "math": math,
    "builtins": builtins,
    "torch.autograd": torch.autograd,
    "torch.ops.aten": torch.ops.aten,
}


class CannotKey(Exception):
    """A graph that the disk cache leaves alone, with what it holds."""


Called = Callable[[Any], str]
"""The name of a function that a graph calls."""


def text_of(gm: fx.GraphModule, called: Called) -> tuple[str, list[torch.Tensor]]:
    """The graph's text, a line a node, and the tensors that it reads as attributes."""
    tensors: list[torch.Tensor] = []
    return "\n".join(map(repr, graph_data(gm, tensors, [], called))), tensors


def graph_data(
    gm: fx.GraphModule, tensors: list[torch.Tensor], names: list[str], called: Called | None = None
) -> Iterator[list[Any]]:
    """The nodes in order, each as `[op, target, args, kwargs]` of JSON's kinds, referred to by its
    number. Raises CannotKey.

    tensors, names: the tensors that are attributes, each once, and the names of nodes and
    attributes, of which the data say nothing, are added to these.
    """
    numbers: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        names.append(str(node.target) if node.op == "get_attr" else node.name)
        target: Any = None
        if node.op == "call_module":
            raise CannotKey(f"a call of the module {node.target}")
        if node.op == "get_attr":
            target = _attribute(gm, str(node.target), tensors, names, called)
        elif node.op.startswith("call_"):
            target = node.target
            target = target if isinstance(target, str) else (called or function)(target)
        args = [_value(item, numbers) for item in node.args]
        named = node.kwargs
        kwargs = named and {name: _value(item, numbers) for name, item in named.items()}
        yield [node.op, target, args, kwargs]


def _attribute(
    gm: fx.GraphModule,
    target: str,
    tensors: list[torch.Tensor],
    names: list[str],
    called: Called | None,
) -> dict[str, Any]:
    found = operator.attrgetter(target)(gm)
    if isinstance(found, fx.GraphModule):
        return {"graph": list(graph_data(found, tensors, names, called))}
    if not isinstance(found, torch.Tensor):
        raise CannotKey(f"the attribute {target}, a {type(found).__name__}")
    for place, known in enumerate(tensors):
        if known is found:
            return {"tensor": place}
    tensors.append(found)
    return {"tensor": len(tensors) - 1}


def _value(item: Any, numbers: Mapping[fx.Node, int]) -> Any:
    """An argument of a node. Raises CannotKey."""
    if isinstance(item, fx.Node):
        return {"node": numbers[item]}
    if item is None or type(item) in (bool, int, str):
        return item
    if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
        kind = "list" if isinstance(item, list) else "tuple"
        return {kind: [_value(each, numbers) for each in item]}
    if isinstance(item, dict):
        pairs = item.items()
        return {"dict": [[_value(key, numbers), _value(each, numbers)] for key, each in pairs]}
    if isinstance(item, slice):
        return {"slice": [_value(part, numbers) for part in (item.start, item.stop, item.step)]}
    if item is Ellipsis:
        return {"ellipsis": []}
    if not is_overload(item):
        try:
            return {"value": made} if isinstance(made := encoded(item), dict) else made
        except CannotSave:
            if not callable(item):
                raise CannotKey(f"an argument of the class {type(item).__name__}") from None
    return {"function": function(item)}


MAKERS: Mapping[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "slice": lambda parts: slice(*parts),
    "ellipsis": lambda parts: Ellipsis,
}


def graph_from(
    data: Sequence[Any],
    tensors: Sequence[torch.Tensor],
    names: Iterator[str],
    root: torch.nn.Module | None = None,
) -> fx.GraphModule:
    """The graph of what `graph_data` gave; root: what holds tensors under these names already.
    Raises LookupError, TypeError, ValueError and
    AttributeError for anything else."""
    graph, root = fx.Graph(), torch.nn.Module() if root is None else root
    known = {name for name, _, _ in exported_names.named_tensors(root)}
    nodes: list[fx.Node] = []
    for (op, target, args, kwargs), name in zip(data, names):
        called = target or name
        if op == "call_function":
            called = _attribute_getter(args) if target == GETATTR else function_named(target)
        if op == "get_attr":
            ((kind, content),) = target.items()
            value: Any = tensors[content] if kind == "tensor" else None
            if name not in known:
                made = graph_from(content, tensors, names) if value is None else value
                exported_names.place(root, name, made)
            called = name
        own = [_value_from(item, nodes) for item in args]
        named = {key: _value_from(item, nodes) for key, item in kwargs.items()}
        nodes.append(graph.create_node(op, called, tuple(own), named, name.replace(".", "_")))
    graph.lint()
    return fx.GraphModule(root, graph, "Exported")


def _attribute_getter(args: Sequence[Any]) -> Any:
    """`getattr`, of what a tensor has by its class alone. Raises LookupError."""
    name = args[1] if len(args) == 2 else None
    if not isinstance(getattr(torch._C.TensorBase, str(name), None), types.GetSetDescriptorType):
        raise LookupError(f"a graph does not read the attribute {name}")
    return getattr


def _value_from(data: Any, nodes: Sequence[fx.Node]) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "node":
        return nodes[content]
    if kind == "value":
        return decoded(content)
    if kind == "function":
        return function_named(content)
    if kind == "dict":
        content = [{"tuple": pair} for pair in content]
    return MAKERS[kind]([_value_from(each, nodes) for each in content])


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
        found: Any = sys.modules.get(module) if root in PACKAGES else None
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is target:
            return f"{module}.{name}"
    plain = str(getattr(target, "__name__", ""))
    for called, place in PLACES.items() if plain else ():
        if getattr(place, plain, None) is target:
            return f"{called}.{plain}"
    raise CannotKey(f"the function {module}.{name or plain or target!r}, which may change")


def function_named(name: str) -> Any:
    """The function of a name that `function` gave. Raises LookupError."""
    if name.startswith("torch.ops."):
        return decoded({"operator": name.removeprefix("torch.ops.")})
    parts = name.split(".")
    if parts[0] not in PACKAGES or (parts[0] == "builtins" and parts[-1] not in PYTHON):
        raise LookupError(f"a graph does not call {name}")
    for end in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return operator.attrgetter(".".join(parts[end:]))(module)
    raise LookupError(f"there is no function {name}")
