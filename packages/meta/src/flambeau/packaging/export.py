"""Export of a whole function as one graph, in memory and in a file.

In: a function and example arguments, or a file. Out: an `Exported` that is called like the
function. Invariant: a file holds data only, its graph as `cache.graph_data` has it: what a graph
holds that has no such form is an error.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import flambeau_capture
import torch
from flambeau_aot import CannotSave, decoded, encoded
from flambeau_capture import ExportError
from flambeau_capture.exports import exporting
from flambeau_capture.exports.exported_names import TABLES, argument_names, named_tensors, place
from torch import fx

from flambeau._torch_compat import pytree
from flambeau.cache.graph_data import CannotKey, graph_data, graph_from
from flambeau.cache.open_sizes import open_sizes
from flambeau.errors import CannotPackage, Refused
from flambeau.packaging import archive
from flambeau.packaging.decomposing import GraphSignature, decomposed, refuse_shared, signature_of
from flambeau.packaging.guard_expressions import OpenForm, open_form_from, written
from flambeau.shown import Shown
from flambeau.switching.stack import module_of_program

KIND = "graph"
GRAPH = "graph.json"
TEXT = "graph.txt"
TENSORS = "tensors.pt"


class CallSpec(NamedTuple):
    """The structures of `(args, kwargs)` and of the result."""

    in_spec: Any
    out_spec: Any


@dataclass(frozen=True, repr=False)
class Exported(Shown, exporting.Exported):
    """A graph that is called like the function it was made of; see `flambeau_capture.Exported`.

    open_sizes: the sizes that are left open, with their conditions as data. is_inference: its
    results have no gradient, and an argument that requires one is refused while grad is enabled.
    Its text form is the graph as Python, with the shape of every value.
    """

    open_sizes: Any = None
    is_inference: bool = False

    @property
    def graph(self) -> fx.Graph:
        """The graph; `graph_module.code` is its text as Python."""
        return self.graph_module.graph

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name, without those buffers that no state has."""
        return dict(self.graph_module.state_dict())

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Parameters with the names of the module that was exported."""
        return self.graph_module.named_parameters()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters."""
        return self.graph_module.parameters()

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Buffers with the names of the module that was exported, and other tensors of its own."""
        return self.graph_module.named_buffers()

    def buffers(self) -> Iterator[torch.Tensor]:
        """The buffers."""
        return self.graph_module.buffers()

    @property
    def call_spec(self) -> CallSpec:
        """The structures of the arguments and of the result."""
        return CallSpec(self.in_spec, self.out_spec)

    @property
    def graph_signature(self) -> GraphSignature:
        """What the graph reads, returns and writes. Raises what `run_decompositions` does."""
        return signature_of(self if self.is_inference else self.run_decompositions())

    def run_decompositions(self, decomp_table: Mapping[Any, Any] | None = None) -> Exported:
        """The same program in ATen operators without writes but `copy_`, at the end, to arguments
        and buffers; for inference.

        decomp_table: functions by operator, which decompose it further: that of
        `flambeau_prims.decompositions()`, of `torch.export.default_decompositions()`, or your own.
        None: none is; what autograd sees as one operator stays one.

        Raises TypeError for what is no such table, `flambeau.ExportError` for what such a graph
        cannot say, as a result that is a view with a shape that its values decide, and
        `flambeau.AotError` where tracing fails.
        """
        if not isinstance(decomp_table, Mapping | None):
            raise TypeError(f"decomp_table has functions by operator, not {decomp_table!r}")
        for operator, function in (decomp_table or {}).items():
            if not callable(function):
                raise TypeError(f"decomp_table has {function!r} for {operator}: give a function")
        return decomposed(self, decomp_table or {})

    def validate(self) -> None:
        """Raises `flambeau.ExportError` where the graph, which may have been edited, cannot be
        called as before."""
        graph = self.graph_module.graph
        try:
            graph.lint()
        except RuntimeError as error:
            raise ExportError(f"the graph is none: {error}") from error
        tensors = sum(isinstance(each, flambeau_capture.TensorForm) for each in self.examples)
        (returned,) = graph.output_node().args
        own = len(graph.find_nodes(op="placeholder")), len(returned)  # type: ignore[arg-type]
        if own != (tensors, self.out_spec.num_leaves):
            raise ExportError(
                f"the graph has {own[0]} inputs and {own[1]} results, the call has {tensors} "
                f"tensors and {self.out_spec.num_leaves} results"
            )

    def result(
        self,
        graph: Callable[..., Any],
        leaves: Sequence[Any],
        holder: torch.nn.Module | None = None,
    ) -> Any:
        """What the graph, or a copy of it whose tensors are the holder's, makes of the flattened
        arguments."""
        if not self.is_inference:
            return super().result(graph, leaves)
        if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in leaves):
            raise ValueError(
                "an argument requires grad, and a decomposed program is for inference: call it "
                "under torch.no_grad(), or call the program that it was made of"
            )
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        refuse_shared(self.graph, holder or self.graph_module, tensors)
        with torch.no_grad():
            return super().result(graph, leaves)

    def save(self, path: str | Path) -> Path:
        """Write it to one file. Raises CannotPackage, with what has no form in a file."""
        tensors: list[torch.Tensor] = []
        names: list[str] = []
        try:
            data = {
                "graph": list(graph_data(self.graph_module, tensors, names)),
                "names": names,
                "state": [
                    [name, _numbered(tensors, tensor), state]
                    for name, tensor, state in named_tensors(self.graph_module)
                ],
                "tensors": [[isinstance(t, torch.nn.Parameter), t.requires_grad] for t in tensors],
                "arguments": pytree.treespec_dumps(self.in_spec),
                "result": pytree.treespec_dumps(self.out_spec),
                "examples": [
                    {"form": encoded((tuple(each.shape), each.dtype, each.device, each.order))}
                    if isinstance(each, flambeau_capture.TensorForm)
                    else {"value": encoded(each)}
                    for each in self.examples
                ],
                "guards": [str(guard) for guard in self.guards],
                "positional": list(self.positional),
                "open": None if self.open_sizes is None else self.open_sizes.data(),
                "inference": self.is_inference,
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

    def __copy__(self) -> Exported:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Exported:
        return replace(self, graph_module=copy.deepcopy(self.graph_module, memo))

    def __reduce__(self) -> Any:
        raise TypeError("an export is not pickled: use save(path) and flambeau.load_export")

    def module(self) -> torch.nn.Module:
        """A module that is called as the function is and holds the graph with its parameters and
        buffers: for what takes modules, as `torch.export.export` and `torch.onnx.export` do (with
        their own `dynamic_shapes`). It checks its arguments as a call of the export does."""
        return _module_of(self)

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
        names = argument_names(self.in_spec, self.positional)
        known = enumerate(zip(names, self.examples, strict=True))
        found = [f"argument {at} ({name}): {each}" for at, (name, each) in known]
        return found if self.open_sizes is None else found + self.open_sizes.lines()


def _numbered(tensors: list[torch.Tensor], tensor: torch.Tensor) -> int:
    """The place of a tensor in the list, where it is added unless it is there."""
    for number, known in enumerate(tensors):
        if known is tensor:
            return number
    tensors.append(tensor)
    return len(tensors) - 1


def _module_of(exported: Exported) -> torch.nn.Module:
    """A module around the graph whose `forward` has the names of the exported arguments."""
    in_spec = exported.in_spec
    _, by_name = in_spec.unflatten([None] * in_spec.num_leaves)
    kinds = inspect.Parameter
    named = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in exported.positional]
    named += [kinds(name, kinds.KEYWORD_ONLY) for name in by_name]
    signature = inspect.Signature(named)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises TypeError and ValueError where the arguments are not of
        the exported form."""
        given = signature.bind(*args, **kwargs)
        leaves = exported.leaves(given.args, given.kwargs)
        return exported.result(functools.partial(compute, self), leaves, self)

    graph_module = exported.graph_module
    compute = type(graph_module).forward  # reads its tensors from whatever module it is given
    own = kinds("self", kinds.POSITIONAL_ONLY)
    forward.__signature__ = inspect.Signature([own, *named])  # type: ignore[attr-defined]
    methods = {"forward": forward, "__copy__": _copied, "__deepcopy__": _copied}
    methods |= {"__reduce__": _not_pickled, "__reduce_ex__": _not_pickled}
    made: torch.nn.Module = type("ExportedModule", (torch.nn.Module,), methods)()
    made.__dict__.update({table: vars(graph_module)[table] for table in TABLES})
    return made


def _copied(module: torch.nn.Module, memo: dict[int, Any] | None = None) -> torch.nn.Module:
    """A copy of the same class: a deep one where there is a memo."""
    made = type(module).__new__(type(module))
    if memo is not None:
        memo[id(module)] = made
    made.__dict__.update(vars(module) if memo is None else copy.deepcopy(vars(module), memo))
    return made


def _not_pickled(module: torch.nn.Module, protocol: Any = None) -> Any:
    raise TypeError(
        "the module of an export is not pickled: use save(path) of the export, and "
        "flambeau.load_export(path).module()"
    )


def export(
    fn: Callable[..., Any], *args: Any, dynamic_shapes: Any = None, **kwargs: Any
) -> Exported:
    """One graph of the whole call `fn(*args, **kwargs)`, which is captured and not run: arguments,
    parameters, buffers and generators are as they were.

    dynamic_shapes: the sizes to leave open, a dict by the arguments' names or a tuple by their
    places, nested as they are. For a tensor it has a dict by dimension or a tuple: a `Dim`, a name
    (dimensions of one name are equal), None or a number for a constant, or what `torch.export`
    takes there. None: the dimensions that `flambeau.mark_dynamic` was called for are left open.

    Raises `flambeau.Unsupported` with the user's line where a graph breaks, and
    `flambeau.ExportError` where the call changes objects besides tensors, and where the program
    makes a constant of a size that is declared open.
    """
    made = flambeau_capture.export(
        module_of_program(fn), *args, dynamic_shapes=dynamic_shapes, **kwargs
    )
    given = {each.name: getattr(made, each.name) for each in fields(made)}
    if made.open_sizes is not None:
        given |= _with_data(made)
    return Exported(**given)


def _with_data(made: flambeau_capture.Exported) -> dict[str, Any]:
    """The open sizes as data, and the arguments' forms with the names that they have there."""
    try:
        form, shapes = open_form(made)
    except CannotKey as error:
        raise ExportError(f"a condition on sizes is no data: {error}") from error
    examples = [
        replace(example, shape=shapes[place]) if place in shapes else example
        for place, example in enumerate(made.examples)
    ]
    return {"open_sizes": form, "examples": tuple(examples)}


def open_form(
    made: flambeau_capture.Exported,
) -> tuple[OpenForm | None, dict[int, tuple[Any, ...]]]:
    """What has to hold for the open sizes of a graph now, and by argument its shape with their
    names. Raises CannotKey."""
    sizes = open_sizes(made.graph_module)
    if sizes is None:
        return None, {}
    names = [f"s{number}" for number in range(len(sizes.symbols))]
    places: dict[int, tuple[int, int]] = {}
    equal: list[tuple[int, int, Any]] = []
    shapes: dict[int, tuple[Any, ...]] = {}
    tensors = [at for at, each in enumerate(made.examples) if hasattr(each, "shape")]
    found = {
        at: [sizes.size(number) for number in fake.shape]
        for at, fake in zip(tensors, sizes.placeholders, strict=True)
    }
    for (at, dim), name in _declared_names(made).items():
        if found[at][dim][0] == "s":
            names[found[at][dim][1]] = name
    for at, trees in found.items():
        for dim, tree in enumerate(trees):
            if not isinstance(tree, int):
                equal.append((at, dim, tree))
                if tree[0] == "s":
                    places.setdefault(tree[1], (at, dim))
                shapes[at] = tuple(t if isinstance(t, int) else written(t, names) for t in trees)
    missing = [names[number] for number in range(len(names)) if number not in places]
    if missing:
        raise CannotKey(f"{missing[0]}, which no argument has as a size")
    where = tuple(places[number] for number in range(len(names)))
    return OpenForm(tuple(names), where, tuple(equal), tuple(sizes.conditions())), shapes


def _declared_names(made: flambeau_capture.Exported) -> dict[tuple[int, int], str]:
    """The names that sizes were declared by, by argument and dimension."""
    known = made.open_sizes
    return {} if known is None else {known.places[symbol]: n for symbol, n in known.names.items()}


def load_export(path: str | Path) -> Exported:
    """What `Exported.save` wrote. Raises Refused with the reason."""
    file = Path(path)
    with tempfile.TemporaryDirectory(prefix="flambeau-") as name:
        folder = Path(name)
        archive.unpack(file, KIND, folder)
        try:
            data = json.loads((folder / GRAPH).read_text())
            tensors = archive.tensors_from(folder / TENSORS, data["tensors"])
            root = torch.nn.Module()
            for own, number, state in data["state"]:
                place(root, own, tensors[number], state)
            graph_module = graph_from(data["graph"], tensors, iter(data["names"]), root)
            graph_module.__dict__.update({table: vars(root)[table] for table in TABLES})
            return Exported(
                graph_module=graph_module,
                guards=tuple(data["guards"]),
                in_spec=pytree.treespec_loads(data["arguments"]),
                out_spec=pytree.treespec_loads(data["result"]),
                examples=tuple(
                    flambeau_capture.TensorForm(*decoded(each["form"]))
                    if "form" in each
                    else decoded(each["value"])
                    for each in data["examples"]
                ),
                open_sizes=open_form_from(data["open"]),
                positional=tuple(data["positional"]),
                is_inference=data["inference"],
            )
        except (
            AttributeError, LookupError, NotImplementedError, TypeError, ValueError,
        ) as error:  # fmt: skip
            raise Refused(f"{file}: {type(error).__name__}: {error}") from error
