"""Transforms of `torch.func` as higher-order operators, and `functional_call`.

In: a function value and the options or primals of grad, Jacobians, vjp, linearize or vmap; a module
and tensors in place of its own. Out: `TransformValue`, `VmapValue`, `DerivativeValue`; the call's
result. Invariant: every tensor of the arguments is an argument of the body; what a mapped body
reads from outside becomes an argument that is not mapped over; a derivative is a node of the graph
that computes the result and never leaves it. `linearize` gives no function of its primals to
autograd, as eager folds them into it. Modules have the given tensors during a functional_call only.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves, tree_map_only

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.graph.functions import (
    TRANSFORMS,
    Body,
    applied_call,
    jvp_call,
    linear_call,
    transform_call,
    vjp_call,
    vmap_call,
)
from flambeau_capture.graph.operator_effects import GraphEffects
from flambeau_capture.identity import known_in
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    Tracer,
    Unreconstructible,
    Value,
    needing,
    unpack,
)
from flambeau_capture.values.constant import NONE, Constant, constant_of, is_none
from flambeau_capture.values.containers.dicts import DictValue, named_dict, pairs_of
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue
from flambeau_capture.values.functions.call_rules import CODES, Action, CallRule, handles
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.higher_order.bodies import (
    TensorSlot,
    arguments,
    capture_body,
    capture_call,
    numbered,
    places,
)
from flambeau_capture.values.objects.nn_modules import ModuleValue
from flambeau_capture.values.tensors.graph_calls import project, record_call, run_call, version_of
from flambeau_capture.values.tensors.tensor import TensorValue


class TransformValue(Value):
    """What torch.func.grad and its relatives answer."""

    described = "{0.kind} of {0.fn}"
    cls: type = types.FunctionType

    def __init__(self, kind: str, fn: Value, options: dict[str, Any]) -> None:
        self.kind = kind
        self.fn = fn
        self.options = options

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if kwargs:
            raise Break("FB0005", f"call of {self.describe()} with keyword arguments")
        before = _changes(tx)
        plain = self.kind == "functionalize"
        body, given, shapes = capture_call(tx, self.describe(), self.fn, args, hides_history=plain)
        options = tuple(self.options.items())
        head = (self.kind, body.node, places(shapes), options, len(given))
        nodes = [*(value.node for value in given), *body.lifted]
        if plain:  # whoever traces the graph frees it of writes
            if _changes(tx) != before:
                raise Break(_REASON, f"{self.describe()}, which has effects")
            if tx.graph.outer is not None and "mutations_and_views" in self.options.values():
                raise Break(_REASON, f"{self.describe()} without views, inside of a transform")
            run_call(tx, _must_be_plain, fx.node.map_arg((*head, *nodes), tx.graph.localize), {})
            return tx.call(self.fn, args, {})
        return record_call(tx, transform_call, head, nodes)

    def reconstruct(self, writer: Any) -> None:
        options = {name: Constant(option) for name, option in self.options.items()}
        writer.call(TRANSFORMS[self.kind], [self.fn], options)


def _must_be_plain(
    kind: str, body: Body, shape: Any, options: Any, count: int, *tensors: Tensor
) -> None:
    """A graph break where `functionalize` answers tensors of other layouts than the function, or
    that share memory otherwise: with an argument that was written to, or through a view."""
    given = [tensor for tensor in tensors if isinstance(tensor, Tensor)]  # no open numbers
    if len({tensor.untyped_storage()._cdata for tensor in given}) < len(given):
        raise Break(_REASON, "torch.func.functionalize of arguments that share memory")
    made: list[Any] = [
        torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        if isinstance(t, Tensor)
        else t
        for t in tensors
    ]

    def facts(result: Any) -> list[Any]:
        known = [leaf for leaf in (*made, *tree_leaves(result)) if isinstance(leaf, Tensor)]
        same = [next(n for n, one in enumerate(known) if one is leaf) for leaf in known]
        stored = [leaf.untyped_storage()._cdata for leaf in known]
        laid = [(leaf.stride(), leaf.storage_offset()) for leaf in known]
        return [same, list(map(stored.index, stored)), laid]

    plain = body(*made)
    if facts(plain) != facts(transform_call(kind, body, shape, options, count, *made)):
        raise Break(
            _REASON, "torch.func.functionalize, of which the results are laid out otherwise"
        )


def _bound(fn: Any, args: Args, kwargs: Kwargs) -> tuple[dict[str, Value], dict[str, Any]]:
    """Arguments of a transform by name: what is a value of the program, and plain options."""
    bound = inspect.signature(fn).bind(*args, **kwargs).arguments
    values = {n: v for n, v in bound.items() if n in ("func", "primals", "tangents")}
    with needing("FB0005", lambda error: f"{fn.__name__} with {error}"):
        plain = {name: v.as_python() for name, v in bound.items() if name not in values}
    return values, plain


def _register(kind: str, fn: Any) -> None:
    @handles(fn)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        values, options = _bound(fn, args, kwargs)
        return TransformValue(kind, values["func"], options)


for _kind, _fn in TRANSFORMS.items():
    _register(_kind, _fn)


def _transformed(maker: Any) -> Any:
    def call(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        """A function that a transform has made before, called on the variables that it encloses."""
        enclosed = {
            name: content
            for name, cell in zip(fn.code.co_freevars, fn.closure())
            if (content := cell.content) is not None and name in inspect.signature(maker).parameters
        }
        made = tx.call(tx.wrap_new(maker), [enclosed.pop("func")], enclosed)
        return tx.call(made, args, kwargs)

    return call


for _maker in (torch.vmap, *reversed(TRANSFORMS.values())):
    CODES[_maker(lambda x: x).__code__] = CallRule(
        Action.ANSWER, f"functions of {_maker.__name__}", _transformed(_maker), of_called=True
    )


@handles(torch.func.jvp)
def _jvp(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    values, options = _bound(torch.func.jvp, args, kwargs)
    primals = values["primals"]
    parts: Args = getattr(primals, "parts", list)()
    body, given, shape = capture_call(tx, "a function of torch.func.jvp", values["func"], parts)
    tangents, moved = numbered(tx, values["tangents"])
    moved = tree_map_only(TensorSlot, lambda slot: TensorSlot(slot.index + len(given)), moved)
    shapes = (list(shape) if primals.cls is list else shape, moved)
    nodes = [value.node for value in (*given, *tangents)]
    head = (body.node, places(shapes), bool(options.get("has_aux", False)), len(nodes))
    return record_call(tx, jvp_call, head, [*nodes, *body.lifted])


_REASON = "FB0005"


class DerivativeValue(Value):
    """The second result of vjp or linearize."""

    described = "a derivative made by {0.name}"
    cls: type = types.FunctionType

    def __init__(self, tx: Tracer, name: str, node: fx.Node, watched: list[torch.Tensor]) -> None:
        self.name = name
        self.node = node
        self.step = tx.step()
        self._graph = tx.graph
        self._watched = [(tensor, version_of(tensor)) for tensor in watched]

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if tx.graph is not self._graph:
            raise Break(_REASON, f"{self.describe()} in a function that torch maps or runs again")
        if any(version_of(tensor) != version for tensor, version in self._watched):
            raise Unreconstructible(self, f"{self.describe()} of what was written to since")
        with needing(_REASON, lambda error: f"{self.describe()} with {error}"):
            options = tuple((name, value.as_python()) for name, value in kwargs.items())
        given, shape = numbered(tx, TupleValue(args))
        head = (self.node, places(shape), options)
        return record_call(tx, applied_call, head, [value.node for value in given])


def _derivative(tx: Tracer, name: str, target: Any, args: Args, options: Any) -> list[Value]:
    body, given, shape = capture_call(tx, f"a function of {name}", args[0], args[1:])
    nodes = [*(value.node for value in given), *body.lifted]
    watched = [entry.meta["val"] for entry in nodes]
    followed = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in watched)
    if target is linear_call and (followed or tx.graph.outer is not None):
        raise Break(_REASON, f"{name} at what is differentiated or mapped")
    plain = (body.node, places(shape), options, len(given), *nodes)
    local = fx.node.map_arg(plain, tx.graph.localize)
    if target is linear_call:
        run_call(tx, _must_be_linear, local, {})
    result = run_call(tx, target, local, {})
    node = tx.graph.record("call_function", target, local, {}, result, tx.stack_trace())
    answers = [project(tx, node, place, result[place], {}) for place in range(2, len(result))]
    function = tx.graph.graph.call_function(operator.getitem, (node, 1))
    function.meta.update(val=result[1], projection=True, stack_trace=tx.stack_trace())
    return [
        project(tx, node, 0, result[0], {}),
        DerivativeValue(tx, name, function, watched if target is linear_call else []),
        *answers,
    ]


def _must_be_linear(body: fx.GraphModule, _: Any, __: None, count: int, *tensors: Tensor) -> None:
    """A graph break where eager's linear function is more than the derivative: it is a recording of
    one run, which loses writes, keeps the numbers drawn and what transforms inside of the function
    answer, and answers constants of its own for what no tangent enters, and memory of its own."""
    if any(isinstance(child, fx.GraphModule) for child in body.children()):
        raise Break(_REASON, "torch.func.linearize of a function that calls transforms")
    effects = GraphEffects()
    tangents = [torch.zeros_like(tensor) for tensor in tensors[:count]]
    with forward_ad.dual_level(), compat.Following(effects.see, tangents) as following:
        results = tree_leaves(body(*map(forward_ad.make_dual, tensors, tangents), *tensors[count:]))
        found = [
            forward_ad.unpack_dual(leaf).tangent for leaf in results if isinstance(leaf, Tensor)
        ]
    if effects.any():
        raise Break(_REASON, "torch.func.linearize of a function that writes or draws")
    if len(found) < len(results) or not all(map(following.computed, found)):
        raise Break(_REASON, "torch.func.linearize of a function with a result of no tangent")
    if len({t.untyped_storage()._cdata for t in (*tangents, *found)}) < len(tangents + found):
        raise Break(_REASON, "torch.func.linearize of a function with a result that is a view")


@handles(torch.func.vjp)
def _vjp(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not set(kwargs) <= {"has_aux"}:
        raise Break(_REASON, "torch.func.vjp with other keyword arguments")
    has_aux = "has_aux" in kwargs and kwargs["has_aux"].truth(tx)
    return TupleValue(_derivative(tx, "torch.func.vjp", vjp_call, args, has_aux))


@handles(torch.func.linearize)
def _linearize(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if kwargs:
        raise Break(_REASON, "torch.func.linearize with keyword arguments")
    return TupleValue(_derivative(tx, "torch.func.linearize", linear_call, args, None))


@dataclass(frozen=True)
class _Mapped:
    """What is mapped over: tensors of the graph around the body, each along a dimension."""

    outer: GraphBuilder
    given: list[TensorValue] = field(default_factory=list)
    dims: list[int] = field(default_factory=list)
    inner: list[fx.Graph] = field(default_factory=list)


class VmapValue(Value):
    """What torch.vmap answers."""

    described = "vmap of {0.fn}"
    cls: type = types.FunctionType

    def __init__(
        self, fn: Value, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None
    ) -> None:
        self.fn = fn
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.randomness = randomness
        self.chunk_size = chunk_size

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if kwargs:
            raise Break("FB0005", f"call of {self.describe()} with keyword arguments")
        in_dims = self.in_dims if isinstance(self.in_dims, tuple) else (self.in_dims,) * len(args)
        if len(in_dims) != len(args):
            raise Break("FB0005", f"call of {self.describe()} with in_dims {self.in_dims}")
        mapped = _Mapped(tx.graph)
        inside = functools.partial(self._inside, mapped)

        def run(body: GraphBuilder) -> Value:
            mapped.inner.append(body.graph)
            return tx.call(self.fn, [inside(body, *pair) for pair in zip(args, in_dims)], {})

        before = _changes(tx)
        body = capture_body(tx, self.describe(), run)
        if self.chunk_size is not None and _changes(tx) != before:
            raise Break("FB0005", f"{self.describe()} in chunks, of each of which it has effects")
        randomness = self.randomness
        if self.chunk_size is not None and randomness == "same":  # the state is set back for each
            if tx.graph.effects.other:
                raise Break("FB0005", "torch.vmap in chunks that draw the same numbers")
            randomness = "different"
        along = (*mapped.dims, *(None for _ in body.lifted))
        head = (body.node, along, self.out_dims, randomness, self.chunk_size)
        nodes = [*(value.node for value in mapped.given), *body.lifted]
        found = record_call(tx, vmap_call, head, nodes)
        if self.chunk_size is not None:  # results of chunks are put together, by copies
            return found
        return self._arguments_again(body.result, found, mapped)

    def _arguments_again(self, inner: Value, found: Value, mapped: _Mapped) -> Value:
        """The results; one that is a mapped argument itself is the same tensor outside."""
        if isinstance(inner, SequenceValue) and isinstance(found, SequenceValue):
            pairs = zip(inner.parts(), found.parts())
            parts = [self._arguments_again(*pair, mapped) for pair in pairs]
            same = all(one is other for one, other in zip(parts, found.parts()))
            return found if same else found.like(parts)
        if not isinstance(inner, TensorValue) or inner.node.op != "placeholder":
            return found
        if inner.node.graph not in mapped.inner:  # an argument of what is around, as it is there
            return found
        name = str(inner.node.target)
        place = int(name[3:]) if name.startswith("arg") else len(mapped.given)
        if place >= len(mapped.given) or type(self.out_dims) is not int:
            return found
        argument, along = mapped.given[place], mapped.dims[place]
        rank = argument.fake.dim()
        return argument if along % rank == self.out_dims % rank else found

    def _inside(self, mapped: _Mapped, body: GraphBuilder, value: Value, dim: Any) -> Value:
        if dim is None:
            return value
        inside = functools.partial(self._inside, mapped, body)
        if isinstance(dim, int):
            if not isinstance(value, TensorValue | SequenceValue | DictValue):
                raise Break("FB0005", f"{self.describe()} mapped over {value.describe()}")

            def example(tensor: TensorValue) -> torch.Tensor:
                mapped.dims.append(dim)
                try:
                    selected = mapped.outer.run("select", (tensor.node, dim, 0), {})
                except IndexError as error:  # no such dimension, or no element along it
                    raise Break("FB0005", f"{self.describe()} mapped over: {error}") from error
                found: torch.Tensor = selected
                return found

            return arguments(body, value, mapped.given, example)[0]
        if isinstance(dim, tuple | list) and isinstance(value, SequenceValue):
            parts = value.parts()
            if len(parts) == len(dim) and known_in(value.cls, (tuple, list)):
                return value.like([inside(*pair) for pair in zip(parts, dim)])
        if isinstance(dim, dict) and isinstance(value, DictValue) and value.cls is dict:
            items = {constant_of(key): item for key, item in value.entries()}
            if set(items) == set(dim):
                named = {name: inside(item, dim[name]) for name, item in items.items()}
                return named_dict(named, value._tx)
        raise Break("FB0005", f"call of {self.describe()} with in_dims {self.in_dims}")

    def reconstruct(self, writer: Any) -> None:
        options = (self.in_dims, self.out_dims, self.randomness)
        named = {"chunk_size": Constant(self.chunk_size)}
        writer.call(torch.vmap, [self.fn, *map(Constant, options)], named)


def _changes(tx: Tracer) -> tuple[int, int]:
    """How much has been changed so far, but for iterators that no frame holds, and modes of torch,
    which are after one use as after several."""
    held = (v for f in tx.frames for v in (*f.variables.values(), *f.stack, *f.contents()))
    iterates = any(isinstance(value, IteratorValue) for value in held)
    changed = [v for v in tx.heap.touched if (iterates if v is None else v.cls not in _MODES)]
    return tx.heap.writes(), len(changed)


_MODES = (torch.no_grad, torch.enable_grad, torch.set_grad_enabled)


@handles(torch.vmap)
def make_vmap(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.vmap(func, in_dims=0, out_dims=0, randomness='error', *, chunk_size=None)`."""
    values, plain = _bound(torch.vmap, args, kwargs)
    chunk = plain.get("chunk_size")
    if chunk is not None and (type(chunk) is not int or chunk < 1):
        raise Break("FB0005", f"torch.vmap in chunks of {chunk!r}")
    given = {"in_dims": 0, "out_dims": 0, "randomness": "error", "chunk_size": None, **plain}
    return VmapValue(values["func"], **given)


@handles(torch.func.functional_call)
def _functional_call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`functional_call(module, dicts, args=None, kwargs=None, *, tie_weights, strict)`."""
    names = ("module", "parameter_and_buffer_dicts", "args", "kwargs")
    given: dict[str, Value] = dict(zip(names, args)) | dict(kwargs)
    module, tables = given["module"], _tables(given["parameter_and_buffer_dicts"])
    if not isinstance(module, ModuleValue):
        raise Break("FB0005", f"functional_call of {module.describe()}")
    if "strict" in given and given["strict"].truth(tx):
        raise Break("FB0005", "functional_call with strict=True")
    tied = given["tie_weights"].truth(tx) if "tie_weights" in given else True
    chosen = {constant_of(key): value for table in tables for key, value in table.entries()}
    if len(chosen) != sum(table.length(tx) for table in tables):
        raise Break("FB0005", "functional_call with a name in two dicts")
    swaps = _swaps(tx, module, chosen, tied)
    positional, named = _arguments(tx, given)
    try:
        for owner, name, value in swaps.values():
            owner.swapped[name] = value
        result = tx.call(module, positional, named)
        for table in tables:
            for key, value in table.entries():
                owner, name, _ = swaps[constant_of(key)]
                if owner.swapped[name] is not value:
                    table.store(tx, key, owner.swapped[name])
        return result
    finally:
        for owner, name, _ in swaps.values():
            owner.swapped.pop(name, None)


def _tables(value: Value) -> list[DictValue]:
    found = value.parts() if isinstance(value, SequenceValue) else [value]
    tables = [table for table in found if isinstance(table, DictValue)]
    if len(tables) != len(found):
        raise Break("FB0005", f"functional_call with {value.describe()}")
    return tables


def _arguments(tx: Tracer, given: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    positional, named = given.get("args", NONE), given.get("kwargs", NONE)
    listed = unpack(tx, positional) if positional.cls is tuple else [positional]
    pairs = () if is_none(named) else pairs_of(tx, named)
    return [] if is_none(positional) else listed, {constant_of(key): one for key, one in pairs}


Named = tuple[str, ModuleValue, str, Value]


def _swaps(
    tx: Tracer, module: ModuleValue, chosen: dict[str, Value], tied: bool
) -> dict[str, tuple[ModuleValue, str, Value]]:
    """Which module answers which value for which name, by the name's path."""
    everything = list(_named(tx, module, ""))
    own = {path: (owner, name, value) for path, owner, name, value in everything}
    swaps: dict[str, tuple[ModuleValue, str, Value]] = {}
    for path, value in chosen.items():
        if path not in own:
            raise Break("FB0005", f"functional_call with {path!r}, which the module has not")
        same = [p for p, _, _, v in everything if v is own[path][2]] if tied else [path]
        for alias in same:
            if alias in chosen and chosen[alias] is not value:
                raise Break("FB0005", "functional_call with two values for a tied tensor")
            swaps[alias] = (*own[alias][:2], value)
    return swaps


def _named(
    tx: Tracer, module: ModuleValue, prefix: str
) -> Iterator[tuple[str, ModuleValue, str, Value]]:
    """Every parameter and buffer, by path, owner and name; that they are these is guarded."""
    for table in ("_parameters", "_buffers", "_modules"):
        entries = module.instance_get(tx, table)
        if not isinstance(entries, DictValue):
            raise Break("FB0005", f"functional_call of {module.describe()}")
        for key, value in entries.entries():
            name = constant_of(key)
            if isinstance(value, ModuleValue):
                yield from _named(tx, value, f"{prefix}{name}.")
            elif not is_none(value):
                real = getattr(value, "real", None)
                if real is not None:
                    tx.guard(value.source, "ID_MATCH", real)
                yield f"{prefix}{name}", module, name, value
