"""Export: a whole function as one stand-alone graph.

In: a function or module and example arguments. Out: an `Exported`: an FX graph with a placeholder
per tensor among the arguments and a flat output, the structures of both sides, the guards.
Invariant: nothing of the function's Python is left, so a function that cannot be had in one graph,
or that changes objects besides tensors, is an error that names the line or the object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from flambeau_capture import _torch_compat as compat
from flambeau_capture.api import compiler_of, optimize, uncompiled
from flambeau_capture.breaks import Unsupported
from flambeau_capture.errors import ExportError
from flambeau_capture.exports.declared_shapes import (
    Declared,
    declared,
    marked,
    names_of_sizes,
    positional_names,
)
from flambeau_capture.exports.exported_buffers import SetAnew, module_of
from flambeau_capture.exports.exported_names import (
    TABLES,
    argument_names,
    differing_argument,
    named_as_in,
)
from flambeau_capture.exports.tensor_forms import TensorForm, difference
from flambeau_capture.graph.builder import hold
from flambeau_capture.observe.records import Records
from flambeau_capture.options import Options

Leaves = Sequence[Any]
_PLAIN = {
    str, bytes, int, float, complex, bool, type(None), type(...), slice, range,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
}  # fmt: skip
"""Classes of what a graph returns besides tensors."""


@dataclass(frozen=True, repr=False)
class Exported:
    """A graph that is called like the function it was made of.

    graph_module: placeholders are the tensors among the flattened arguments, in order; the output
        is the tuple of the flattened result's leaves. Parameters and tensors of the program's own
        are its attributes; of a module, or of its method, under the names that it has them under.
    guards: what was assumed, beyond what a call checks (structure, values that are no tensors,
        dtype, device and shape of each tensor, the conditions on open sizes).
    in_spec, out_spec: structures of `(args, kwargs)` and of the result.
    positional: the names of the arguments that were given by place.
    """

    graph_module: fx.GraphModule
    guards: tuple[Any, ...]
    in_spec: Any
    out_spec: Any
    examples: tuple[Any, ...] = field(repr=False)
    open_sizes: OpenSizes | None = field(default=None, repr=False)
    positional: tuple[str, ...] = field(default=(), repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises TypeError and ValueError where the arguments are not of
        the exported form."""
        return self.result(self.graph_module, self.leaves(args, kwargs))

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments, flattened. Raises TypeError and ValueError where they are not of the
        exported form, with the argument, its dimension, and what was given and expected there."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.in_spec:
            found = differing_argument(spec, self.in_spec, self.positional)
            raise TypeError(f"arguments of another structure: {found}")
        for place, (leaf, example) in enumerate(zip(leaves, self.examples, strict=True)):
            if found := difference(leaf, example):
                tensors = isinstance(leaf, torch.Tensor), isinstance(example, TensorForm)
                kind = TypeError if tensors == (False, True) else ValueError
                raise kind(f"{self.named(place)}: {found}")
        if self.open_sizes is not None:
            self.open_sizes.check(leaves, self.named)
        return leaves

    def named(self, place: int) -> str:
        """What errors call the argument at a place among the flattened ones."""
        return f"argument {place} ({argument_names(self.in_spec, self.positional)[place]})"

    def result(self, graph: Callable[..., Any], leaves: Leaves) -> Any:
        """What the graph, or a copy of it, makes of the flattened arguments."""
        flat = graph(*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))
        return pytree.tree_unflatten(list(flat), self.out_spec)

    def __str__(self) -> str:
        return str(self.graph_module.code).strip()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class OpenSizes:
    """Sizes that an exported graph leaves open, and the conditions on them.

    places: for each symbol, the argument and the dimension where its value is found. equal: sizes
    that have to be what an expression comes to. conditions: sympy expressions that have to hold.
    names: those symbols that were declared by a name.
    """

    places: dict[Any, tuple[int, int]]
    equal: tuple[tuple[tuple[int, int], Any], ...]
    conditions: tuple[Any, ...]
    names: Mapping[Any, str] = field(default_factory=dict)

    def check(self, leaves: Leaves, named: Callable[[int], str]) -> None:
        """Raises ValueError, with the condition that the sizes of these arguments break. named:
        what an argument is called."""
        values = {symbol: leaves[at].shape[dim] for symbol, (at, dim) in self.places.items()}
        called = {symbol: self.names.get(symbol, str(symbol)) for symbol in values}
        shown = ", ".join(f"{called[symbol]} = {value}" for symbol, value in values.items())
        for condition in self.conditions:
            if not bool(condition.xreplace(values)):
                wanted = condition.xreplace({s: compat.symbol(n) for s, n in called.items()})
                raise ValueError(f"exported for sizes with {wanted}, here {shown}")
        for (at, dim), expression in self.equal:
            wanted = int(expression.xreplace(values))
            if leaves[at].shape[dim] != wanted:
                raise ValueError(
                    f"{named(at)}: dimension {dim} is {leaves[at].shape[dim]}, exported for "
                    f"{expression}, which is {wanted} here"
                )


def export(
    fn: Callable[..., Any], *args: Any, dynamic_shapes: Any = None, **kwargs: Any
) -> Exported:
    """One graph of the whole call `fn(*args, **kwargs)`, which is captured and not run: arguments,
    parameters, buffers and generators are as they were.

    dynamic_shapes: the sizes to leave open, a dict by the arguments' names or a tuple by their
    places, nested as they are. For a tensor it has a dict by dimension or a tuple: a `Dim`, a name
    (dimensions of one name are equal), None or a number for a constant, or what `torch.export`
    takes there. None: the dimensions that `mark_dynamic` was called for are left open.

    Raises `Unsupported` with the user's line where a graph breaks, and `ExportError` where the
    call changes objects besides tensors or comes to no graph, and where the program makes a
    constant of a size that is declared open.
    """
    fn = uncompiled(fn)
    shapes = [] if dynamic_shapes is None else declared(fn, args, kwargs, dynamic_shapes)
    module = module_of(fn)
    try:
        with marked(shapes):
            if module is None:
                return _exported(fn, fn, args, kwargs, shapes)
            buffers = SetAnew(module)
            try:
                return _exported(fn, fn, args, kwargs, shapes)
            except _SetsBuffers:
                buffers.put_back()
                return _exported(fn, buffers.written(fn), args, kwargs, shapes, buffers)
            finally:
                buffers.put_back()
    except Exception as error:
        if isinstance(kwargs.get("args", args[0] if args else None), tuple | list):
            error.add_note(
                "The arguments of the call are given as they are, as in export(model, x, mask=m): "
                "here one of them is a tuple or list, as the export of torch takes them all."
            )
        raise


class _SetsBuffers(ExportError):
    """The call changes nothing but which tensors the buffers of modules are."""


def _exported(
    fn: Callable[..., Any],
    captured: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: Sequence[Declared],
    buffers: SetAnew | None = None,
) -> Exported:
    name = getattr(fn, "__qualname__", type(fn).__name__)
    seen = _Seen(name, buffers is not None)
    options = dataclasses.replace(
        Options(), nopython=True, raise_internal_errors=True, small_values=False
    )
    compiled = optimize(seen.backend, options=options)(captured)
    compiler = compiler_of(compiled)
    assert compiler is not None
    records = seen.records = compiler.records
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    result = compiled(*args, **kwargs)
    seen.refuse_changes()
    if buffers is not None and not buffers.put_back():
        raise ExportError(
            f"{name} sets a buffer to what its graph cannot write into it: another size, dtype or "
            f"device, no tensor, or one that has two names"
        )
    if len(seen.modules) != 1:
        what = "; ".join(str(frame) for frame in records.frames) or "no frame of it was captured"
        raise ExportError(f"{name} came to {len(seen.modules)} graphs: {what}")
    for report in seen.modules[0].meta["assumed"]:  # a graph alone cannot be run as it is
        raise Unsupported(report)
    if seen.modules[0].meta["decides_by_floats"]:
        raise ExportError(
            f"{name} computes a float of a size that is left open: an exported graph has whole "
            f"numbers and conditions on them alone; compute with those, or declare None there"
        )
    if any(given.startswith("drawn(") for given in records.graphs[0].inputs):
        raise ExportError(f"{name} draws from a generator of its own: pass the numbers instead")
    results, out_spec = pytree.tree_flatten(result)
    positional = positional_names(fn, len(args))
    called = argument_names(in_spec, positional)
    module, stand_ins = _closed(seen, leaves, results, called, module_of(fn))
    tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    inputs = zip(tensors, module.graph.find_nodes(op="placeholder"), strict=True)
    read = {place for place, node in inputs if any(user.op != "output" for user in node.users)}
    names = names_of_sizes(shapes, leaves, stand_ins, read)
    made = Exported(
        graph_module=module,
        guards=tuple(guard for found in records.guards for guard in found.items),
        in_spec=in_spec,
        out_spec=out_spec,
        examples=tuple(
            TensorForm.of(leaf, stand_ins.get(place)).named(names, place)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for place, leaf in enumerate(leaves)
        ),
        open_sizes=_open_sizes(stand_ins, names),
        positional=positional,
    )
    ends: Any = module.graph.output_node().args[0]
    constants = [
        place for place, end in enumerate(ends) if isinstance(end, fx.Node) and end.op == "get_attr"
    ]
    if constants:  # they are the same objects at each call
        again = pytree.tree_leaves(compiled(*args, **kwargs))
        for place in constants:
            if again[place] is not results[place]:
                raise seen.strange(results[place])
    return made


def _open_sizes(
    stand_ins: Mapping[int, torch.Tensor], names: Mapping[tuple[int, int], str]
) -> OpenSizes | None:
    """The open sizes of the fake tensors that stood for arguments, by their places."""
    places: dict[Any, tuple[int, int]] = {}
    equal: list[tuple[tuple[int, int], Any]] = []
    for at, fake in stand_ins.items():
        for dim, size in enumerate(fake.shape):
            if isinstance(size, torch.SymInt):
                expression = compat.expression(size)
                if expression.is_Symbol:
                    places.setdefault(expression, (at, dim))
                equal.append(((at, dim), expression))
    if not places:
        return None
    first = next(iter(stand_ins.values()))
    assumed = compat.shape_conditions(first.fake_mode)  # type: ignore[attr-defined]
    ranges = [each for each in assumed.ranges if each[0] in places]
    bounds = [symbol >= least for symbol, least, _ in ranges if least is not None]
    bounds += [symbol <= most for symbol, _, most in ranges if most is not None]
    known = [compat.same(symbol, expression) for symbol, expression in assumed.equal]
    conditions = (*bounds, *known, *assumed.guards)
    unknown = {s for each in conditions for s in each.free_symbols} - set(places)
    if unknown:
        symbol = next(iter(unknown))
        raise ExportError(f"a size depends on {symbol}, which is the size of no argument")
    named = {symbol: names[place] for symbol, place in places.items() if place in names}
    return OpenSizes(places, tuple(equal), conditions, named)


class _Whole(int):
    """What stands in the result for a whole number that a graph returns: known by identity."""


class _Seen:
    """The backend of an export: keeps the graph, and the tensors of its only call, in which tensors
    without values stand for what it computes."""

    def __init__(self, name: str, buffers_stay: bool) -> None:
        self.name = name
        self.buffers_stay = buffers_stay  # the captured function lets them be what they were
        self.records: Records | None = None
        self.modules: list[fx.GraphModule] = []
        self.inputs: list[Any] = []
        self.outputs: Sequence[Any] = ()

    def backend(
        self, module: fx.GraphModule, inputs: list[torch.Tensor]
    ) -> Callable[..., Sequence[Any]]:
        self.modules.append(module)
        nodes = list(module.graph.nodes)
        places = [node for node in nodes if node.op == "placeholder"]
        ends = nodes[-1].args[0]
        # What capture knows of values is gone when the graph is called.
        values = [node.meta.get("val") if isinstance(node, fx.Node) else node for node in ends]

        def call(*given: Any) -> Sequence[Any]:
            self.refuse_changes()
            self.inputs = list(given)
            known = dict(zip(places, given, strict=True))
            for node, value in zip(ends, values, strict=True):
                if node not in known or isinstance(value, torch.SymInt):
                    known[node] = self._stand_in(module, node, value)
            self.outputs = [known[node] for node in ends]
            return self.outputs

        return call

    # a graph in a file has no sizes that depend on data: an export says where there is one
    backend.__dict__["supports_symbols"] = ("sizes", "integers", "floats")
    backend.__dict__["returns_numbers"] = True

    def refuse_changes(self) -> None:
        """Raises ExportError where the call changes objects; none is changed yet."""
        assert self.records is not None
        changes = [change for frame in self.records.frames for change in frame.changes]
        besides = [change for change in changes if not change.endswith("._buffers")]
        if besides or (changes and not self.buffers_stay):
            kind = ExportError if besides else _SetsBuffers
            raise kind(
                f"{self.name} changes {', '.join(dict.fromkeys(changes))}: a graph cannot hold "
                f"that; return the new value, or write it into a tensor that is there (copy_)"
            )

    def strange(self, result: Any) -> ExportError:
        """The error of a result that no graph gives."""
        return ExportError(
            f"{self.name} returns an object of {type(result).__qualname__} that is made outside of "
            f"the graph: return plain tensors, numbers and text"
        )

    def _stand_in(self, module: fx.GraphModule, node: Any, value: Any) -> Any:
        """What is in place of a result; the very attribute where it is one."""
        if not isinstance(node, fx.Node):
            return node
        if node.op == "get_attr":
            return attrgetter(str(node.target))(module)
        if isinstance(value, torch.Tensor):
            sizes = [compat.hint(n) if isinstance(n, torch.SymInt) else n for n in value.shape]
            plain = value.layout == torch.strided and None not in sizes
            with torch.inference_mode(value.is_inference()):
                made = torch.empty(sizes if plain else 0, dtype=value.dtype, device=value.device)
            return made.requires_grad_(value.requires_grad)
        number = None if value is None else compat.hint(value)
        if number is None:
            raise ExportError(f"{self.name} returns or uses a number that depends on values")
        return _Whole(number) if isinstance(value, torch.SymInt) else number


def _closed(
    seen: _Seen,
    leaves: Leaves,
    results: Leaves,
    called: Sequence[str],
    owner: torch.nn.Module | None,
) -> tuple[fx.GraphModule, dict[int, torch.Tensor]]:
    """The captured graph between the flattened arguments and the flattened result; and the fake
    tensors with open sizes, by the arguments that they stand for. called: the leaves' names. owner:
    the module that the function is, or is a method of."""
    (source,) = seen.modules
    graph = fx.Graph()
    root = torch.nn.Module()
    root.__dict__.update(
        {name: dict(vars(source)[name]) for name in ("_parameters", "_buffers", "_modules")}
    )
    arguments: dict[int, fx.Node] = {}
    every: dict[int, fx.Node] = {}
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            node = every[place] = graph.placeholder(called[place])
            node.target = node.name
            node.meta["val"] = leaf
            arguments.setdefault(id(leaf), node)
    constants: dict[int, fx.Node] = {}

    def kept(tensor: torch.Tensor) -> fx.Node:
        """A tensor that is no argument, as an attribute of the module; the same one only once."""
        if id(tensor) not in constants:
            name = f"_constant_{len(constants)}"
            hold(root, name, tensor)
            constants[id(tensor)] = graph.get_attr(name)
        return constants[id(tensor)]

    placeholders = source.graph.find_nodes(op="placeholder")
    known: dict[fx.Node, fx.Node] = {}
    sizes: dict[Any, tuple[fx.Node, int]] = {}
    stand_ins: dict[int, torch.Tensor] = {}
    for node, given in zip(placeholders, seen.inputs, strict=True):
        if not isinstance(given, torch.Tensor):
            continue
        found = arguments.get(id(given))
        known[node] = kept(given) if found is None else found
        fake = node.meta["val"]
        opened = [dim for dim, n in enumerate(fake.shape) if isinstance(n, torch.SymInt)]
        if opened and found is None:
            raise ExportError("a size of a tensor that is no argument is left open")
        for dim in opened:
            sizes.setdefault(compat.expression(fake.shape[dim]), (known[node], dim))
        if opened:
            again = [at for at, leaf in enumerate(leaves) if leaf is given]
            stand_ins |= dict.fromkeys(again, fake)
            for at in again:
                every[at].meta["val"] = fake
    for node in placeholders:
        if node not in known:
            known[node] = _size(graph, node, sizes)
    ends: Any = graph.graph_copy(source.graph, known)
    made = {
        id(tensor): node
        for node, tensor in zip(ends, seen.outputs, strict=True)
        if isinstance(tensor, torch.Tensor | _Whole)
    }
    if lost := {id(n) for n in seen.outputs if isinstance(n, _Whole)}.difference(map(id, results)):
        node = next(made[number] for number in lost)
        raise ExportError(
            f"{seen.name} makes something else than a number among its results of {node}, a size "
            f"that is left open: return the number itself"
        )
    flat: list[Any] = []
    for leaf in results:
        if not isinstance(leaf, torch.Tensor | _Whole):
            if type(leaf) not in _PLAIN:
                raise seen.strange(leaf)
            flat.append(leaf)
            continue
        there = made.get(id(leaf)) or arguments.get(id(leaf))
        flat.append(kept(leaf) if there is None and isinstance(leaf, torch.Tensor) else there)
    graph.output(tuple(flat))
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op not in ("get_attr",))
    if owner is not None:
        root = named_as_in(owner, graph, root)
    graph.lint()
    made_of = fx.GraphModule(root, graph, "Exported")
    if owner is not None:
        made_of.__dict__.update({table: vars(root)[table] for table in TABLES})
    return made_of, stand_ins


def _size(graph: fx.Graph, node: fx.Node, sizes: Mapping[Any, tuple[fx.Node, int]]) -> fx.Node:
    """What reads the size that an input of the captured graph was."""
    symbol = compat.expression(node.meta["val"])
    if symbol not in sizes:
        raise ExportError(
            f"the graph reads a number ({node.name}) that is no size of a tensor it computes with"
        )
    tensor, dim = sizes[symbol]
    made = graph.call_method("size", (tensor, dim))
    made.meta["val"] = node.meta["val"]
    return made
