"""Export of a whole function as one graph, in memory and in a file.

In: a function and example arguments, or a file. Out: an `Exported` that is called like the
function. Invariant: a file holds data only, its graph as a list of functions by name: what a graph
holds that has no such form is an error, and a name that is not torch's or Python's arithmetic is
refused when it is read.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import flambeau_capture
import torch
from flambeau_aot import CannotSave, decoded, encoded
from torch import fx

from flambeau._torch_compat import pytree
from flambeau.cache.graph_text import PACKAGES, CannotKey, function
from flambeau.cache.open_sizes import Inexpressible, open_sizes
from flambeau.errors import CannotPackage, Refused
from flambeau.packaging import archive
from flambeau.packaging.guard_expressions import OpenForm, open_form_from, written

KIND = "graph"
GRAPH = "graph.json"
TEXT = "graph.txt"
TENSORS = "tensors.pt"
PYTHON = frozenset({"max", "min", "abs", "sum", "len", "pow", "round", "int", "float", "bool"})
"""Built-in functions that a graph may call."""


MAKERS: Mapping[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "slice": lambda parts: slice(*parts),
}


@dataclass(frozen=True)
class Exported(flambeau_capture.Exported):
    """A graph that is called like the function it was made of; see `flambeau_capture.Exported`.

    open_sizes: the sizes that are left open, with their conditions as data. Its text form is the
    graph as Python, with the shape of every value.
    """

    def save(self, path: str | Path) -> Path:
        """Write it to one file. Raises CannotPackage, with what has no form in a file."""
        tensors: list[torch.Tensor] = []
        try:
            data = {
                "graph": _graph_data(self.graph_module, tensors),
                "arguments": pytree.treespec_dumps(self.in_spec),
                "result": pytree.treespec_dumps(self.out_spec),
                "examples": [_example(each) for each in self.examples],
                "guards": [str(guard) for guard in self.guards],
                "open": None if self.open_sizes is None else self.open_sizes.data(),
            }
        except (CannotSave, CannotKey, NotImplementedError, TypeError, ValueError) as error:
            raise CannotPackage(f"no form in a file: {error}") from error
        files: dict[str, bytes | Path] = {
            GRAPH: json.dumps(data).encode(),
            TEXT: str(self).encode(),
            TENSORS: archive.tensor_bytes(tensors),
        }
        target = Path(path)
        archive.write(target, KIND, {"torch": torch.__version__}, files)
        return target

    def __str__(self) -> str:
        lines = ["# " + text for text in self.signature()]
        for node in self.graph_module.graph.nodes:
            value = node.meta.get("val", node.meta.get("example_value"))
            kind = ""
            if isinstance(value, torch.Tensor):
                kind = f"  # {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            lines.append(f"{node.format_node() or node.name}{kind}")
        return "\n".join(lines)

    def signature(self) -> list[str]:
        """The arguments, one a line, as they have to be; then the conditions on open sizes."""
        found = [f"argument {place}: {each}" for place, each in enumerate(self.examples)]
        return found if self.open_sizes is None else found + self.open_sizes.lines()


def export(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Exported:
    """One graph of the whole call `fn(*args, **kwargs)`, which is captured and not run: arguments,
    parameters, buffers and generators are as they were.

    Dimensions of arguments that `flambeau.mark_dynamic` was called for are left open.

    Raises `flambeau_capture.Unsupported` with the user's line where a graph breaks, and
    `flambeau_capture.ExportError` where the call changes objects besides tensors.
    """
    made = flambeau_capture.export(fn, *args, **kwargs)
    given = {each.name: getattr(made, each.name) for each in fields(made)}
    if made.open_sizes is not None:
        given |= _with_data(made)
    return Exported(**given)


def _with_data(made: flambeau_capture.Exported) -> dict[str, Any]:
    """The open sizes as data, and the arguments' forms with the names that they have there."""
    try:
        form, shapes = open_form(made)
    except (Inexpressible, CannotKey) as error:
        raise flambeau_capture.ExportError(f"a condition on sizes is no data: {error}") from error
    examples = [
        replace(example, shape=shapes[place]) if place in shapes else example
        for place, example in enumerate(made.examples)
    ]
    return {"open_sizes": form, "examples": tuple(examples)}


def open_form(
    made: flambeau_capture.Exported,
) -> tuple[OpenForm | None, dict[int, tuple[Any, ...]]]:
    """What has to hold for the open sizes of a graph now, and by argument its shape with their
    names. Raises CannotKey and Inexpressible."""
    sizes = open_sizes(made.graph_module)
    if sizes is None:
        return None, {}
    names = [f"s{number}" for number in range(len(sizes.symbols))]
    places: dict[int, tuple[int, int]] = {}
    equal: list[tuple[int, int, Any]] = []
    shapes: dict[int, tuple[Any, ...]] = {}
    tensors = [at for at, each in enumerate(made.examples) if hasattr(each, "shape")]
    for at, fake in zip(tensors, sizes.placeholders, strict=True):
        trees = [sizes.size(number) for number in fake.shape]
        for dim, tree in enumerate(trees):
            if not isinstance(tree, int):
                equal.append((at, dim, tree))
                if tree[0] == "s":
                    places.setdefault(tree[1], (at, dim))
                shapes[at] = tuple(t if isinstance(t, int) else written(t, names) for t in trees)
    missing = [names[number] for number in range(len(names)) if number not in places]
    if missing:
        raise Inexpressible(f"{missing[0]}, which no argument has as a size")
    found = tuple(places[number] for number in range(len(names)))
    return OpenForm(tuple(names), found, tuple(equal), tuple(sizes.conditions())), shapes


def load_export(path: str | Path) -> Exported:
    """What `Exported.save` wrote. Raises Refused with the reason."""
    file = Path(path)
    with tempfile.TemporaryDirectory(prefix="flambeau-") as name:
        folder = Path(name)
        archive.unpack(file, KIND, folder)
        try:
            data = json.loads((folder / GRAPH).read_text())
            tensors = torch.load(folder / TENSORS, weights_only=True)
            return Exported(
                graph_module=_graph_from(data["graph"], tensors),
                guards=tuple(data["guards"]),
                in_spec=pytree.treespec_loads(data["arguments"]),
                out_spec=pytree.treespec_loads(data["result"]),
                examples=tuple(_example_from(each) for each in data["examples"]),
                open_sizes=open_form_from(data["open"]),
            )
        except (
            AttributeError, LookupError, NotImplementedError, TypeError, ValueError,
        ) as error:  # fmt: skip
            raise Refused(f"{file}: {type(error).__name__}: {error}") from error


def _example(example: Any) -> Any:
    if hasattr(example, "shape") and hasattr(example, "dtype"):
        return {"form": [encoded(tuple(example.shape)), encoded(example.dtype),
                         encoded(example.device)]}  # fmt: skip
    return {"value": encoded(example)}


def _example_from(data: Mapping[str, Any]) -> Any:
    if "value" in data:
        return decoded(data["value"])
    return flambeau_capture.TensorForm(*map(decoded, data["form"]))


def _graph_data(gm: fx.GraphModule, tensors: list[torch.Tensor]) -> list[dict[str, Any]]:
    """The nodes in order; tensors that are attributes go to `tensors`."""
    nodes: list[dict[str, Any]] = []
    for node in gm.graph.nodes:
        made: dict[str, Any] = {"name": node.name, "op": node.op}
        if node.op == "get_attr":
            made |= _attribute(gm, str(node.target), tensors)
        elif node.op == "call_function":
            made["target"] = function(node.target)
        elif node.op in ("call_method", "placeholder"):
            made["target"] = str(node.target)
        elif node.op != "output":
            raise CannotSave(f"a {node.op} node")
        made["args"] = [_value(item) for item in node.args]
        made["kwargs"] = {name: _value(item) for name, item in node.kwargs.items()}
        nodes.append(made)
    return nodes


def _attribute(gm: fx.GraphModule, target: str, tensors: list[torch.Tensor]) -> dict[str, Any]:
    found = attrgetter(target)(gm)
    if isinstance(found, fx.GraphModule):
        return {"target": target, "graph": _graph_data(found, tensors)}
    if not isinstance(found, torch.Tensor):
        raise CannotSave(f"the attribute {target}, a {type(found).__name__}")
    tensors.append(found.detach())
    parameter = isinstance(found, torch.nn.Parameter)
    return {"target": target, "tensor": len(tensors) - 1, "parameter": parameter,
            "requires_grad": found.requires_grad}  # fmt: skip


def _value(item: Any) -> Any:
    if isinstance(item, fx.Node):
        return {"node": item.name}
    if isinstance(item, (list, tuple)):
        return {"list" if isinstance(item, list) else "tuple": [_value(each) for each in item]}
    if isinstance(item, dict):
        return {"dict": [[_value(key), _value(each)] for key, each in item.items()]}
    if isinstance(item, slice):
        return {"slice": [_value(part) for part in (item.start, item.stop, item.step)]}
    try:
        return {"value": encoded(item)}
    except CannotSave:
        if callable(item):
            return {"function": function(item)}
        raise CannotSave(f"an argument of the class {type(item).__name__}") from None


def _graph_from(data: list[dict[str, Any]], tensors: list[torch.Tensor]) -> fx.GraphModule:
    graph, root = fx.Graph(), torch.nn.Module()
    known: dict[str, fx.Node] = {}
    for each in data:
        target = each.get("target", "output")
        if "graph" in each:
            root.add_module(target, _graph_from(each["graph"], tensors))
        elif "tensor" in each and not hasattr(root, target):
            tensor = tensors[each["tensor"]]
            if each["parameter"]:
                root.register_parameter(target, torch.nn.Parameter(tensor, each["requires_grad"]))
            else:
                root.register_buffer(target, tensor.requires_grad_(each["requires_grad"]))
        called = _function(target) if each["op"] == "call_function" else target
        args = tuple(_value_from(item, known) for item in each["args"])
        kwargs = {name: _value_from(item, known) for name, item in each["kwargs"].items()}
        known[each["name"]] = graph.create_node(each["op"], called, args, kwargs, each["name"])
    graph.lint()
    return fx.GraphModule(root, graph, "Exported")


def _value_from(data: Mapping[str, Any], known: Mapping[str, fx.Node]) -> Any:
    ((kind, content),) = data.items()
    if kind == "node":
        return known[content]
    if kind == "value":
        return decoded(content)
    if kind == "function":
        return _function(content)
    if kind == "dict":
        return {_value_from(k, known): _value_from(v, known) for k, v in content}
    made = [_value_from(each, known) for each in content]
    return MAKERS[kind](made)


def _function(name: str) -> Any:
    """The function of a name that `cache.graph_text.function` gave."""
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
        return attrgetter(".".join(parts[end:]))(module)
    raise LookupError(f"there is no function {name}")
