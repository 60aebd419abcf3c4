"""Bodies of higher-order operators, each a graph of its own.

In: a function value and what it is called with. Out: `Captured`, the graph as an attribute of the
one around it, with the tensors that it takes from there. Invariant: a body has no side effect on
objects of the program, leaves the modes of torch as it found them, and answers tensors and plain
Python values in tuples, lists and dicts; whatever else it does is a graph break.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.identity import known_in
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import constant_of
from flambeau_capture.values.containers.dicts import DictValue, named_dict
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue
from flambeau_capture.values.tensors.tensor import TensorValue

Enter = Callable[[TensorValue], torch.Tensor]


def not_under_hooks(tx: Tracer, reason: str, what: str) -> None:
    """End the graph before what the program's hooks on saved tensors would see in another way."""
    if compat.saved_tensors_may_change():
        raise Break(reason, f"{what} under hooks on saved tensors")
    tx.guard(_HOOKS, "CALL", compat.saved_tensors_stay, "has no hooks on saved tensors")


_HOOKS = ConstantSource(None, "autograd")


@dataclass(frozen=True)
class Captured:
    """A body. `lifted` are nodes of the graph around it: its last arguments."""

    node: fx.Node
    lifted: list[fx.Node]
    result: Value


@contextmanager
def inside(
    tx: Tracer, what: str, outer: GraphBuilder | None = None, later: bool = False
) -> Iterator[GraphBuilder]:
    """Interpretation inside a body, for the extent of a block.

    later: autograd runs it, outside of what is in force here, when the program may have changed
    what it reads.
    """
    body = GraphBuilder(outer or tx.graph)
    before, tx.graph = tx.graph, body
    running, tx.run_later = tx.run_later, what if later else tx.run_later
    grad_mode = torch.is_grad_enabled()
    changes: dict[int, Any] = {}
    try:
        with tx.heap.separate() as changes, compat.without_autocast() if later else nullcontext():
            yield body
    finally:
        tx.graph, tx.run_later = before, running
        if changes:
            tx.heap.changed()  # capture starts again: what was changed is not kept
    if changes:
        raise Break("FB0025", f"{what} changes {', '.join(map(_describe, changes.values()))}")
    if torch.is_grad_enabled() != grad_mode:
        tx.heap.changed()
        raise Break("FB0025", f"{what} leaves the grad mode changed")


def _describe(value: Any) -> str:
    return value.describe() if isinstance(value, Value) else type(value).__name__


def capture_body(
    tx: Tracer, what: str, run: Callable[[GraphBuilder], Value], later: bool = False
) -> Captured:
    """The graph of what `run` interprets; its arguments are those that `run` adds to the body."""
    with inside(tx, what, later=later) as body:
        result = run(body)
        body.set_output(structure(tx, result, what))
    module, lifted = body.finish_body()
    return Captured(tx.graph.add_module(module, "body"), lifted, result)


def capture_call(
    tx: Tracer, what: str, fn: Value, args: Args, hides_history: bool = False
) -> tuple[Captured, list[TensorValue], tuple[Any, ...]]:
    """The body of a call, the tensors of its arguments, and where those are among these."""
    given: list[TensorValue] = []
    shapes: list[Any] = []

    def run(body: GraphBuilder) -> Value:
        body.hides_history |= hides_history
        pairs = [arguments(body, arg, given) for arg in args]
        shapes.extend(shape for _, shape in pairs)
        return tx.call(fn, [inner for inner, _ in pairs], {})

    return capture_body(tx, what, run), given, tuple(shapes)


def numbered(tx: Tracer, value: Value) -> tuple[list[TensorValue], Any]:
    """The tensors of an argument that stay outside, and where they are in it."""
    given: list[TensorValue] = []
    return given, arguments(GraphBuilder(tx.graph), value, given)[1]


def structure(tx: Tracer, value: Value, what: str) -> Any:
    """A result as a graph's output: nodes and constants in containers."""
    if isinstance(value, TensorValue):
        return tx.graph.localize(value.node)
    if isinstance(value, SequenceValue) and known_in(value.cls, (tuple, list, torch.Size)):
        parts = [structure(tx, part, what) for part in value.parts()]
        return parts if value.cls is list else tuple(parts)
    if isinstance(value, DictValue) and value.cls is dict:
        return {constant_of(key): structure(tx, item, what) for key, item in value.entries()}
    try:
        plain = value.as_python()
    except NotConcrete:
        plain = value
    if isinstance(plain, int | float | bool | str | type(None)):
        return plain
    raise Break("FB0025", f"{what} answers {value.describe()}")


def arguments(
    body: GraphBuilder, value: Value, given: list[TensorValue], enter: Enter | None = None
) -> tuple[Value, Any]:
    """An argument inside the body (tensors by `enter`), and where its tensors are in `given`."""
    if isinstance(value, TensorValue):
        if value.attributes:
            raise Break("FB0025", "a tensor with attributes of its own, given to a function's body")
        example = value.fake if enter is None else enter(value)
        given.append(value)
        node = body.add_example(f"arg{len(given) - 1}", example)
        return TensorValue(node, python_class=value.cls), TensorSlot(len(given) - 1)
    if isinstance(value, SequenceValue) and known_in(value.cls, (tuple, list)):
        pairs = [arguments(body, part, given, enter) for part in value.parts()]
        inner, shape = [one for one, _ in pairs], [other for _, other in pairs]
        return (ListValue(inner), shape) if value.cls is list else (TupleValue(inner), tuple(shape))
    if isinstance(value, DictValue) and value.cls is dict:
        named = {
            constant_of(key): arguments(body, item, given, enter) for key, item in value.entries()
        }
        made = named_dict({key: one for key, (one, _) in named.items()}, value._tx)
        return made, {key: other for key, (_, other) in named.items()}
    if enter is not None:
        raise Break("FB0005", f"a function mapped over {value.describe()}")
    return value, None


@dataclass(frozen=True)
class TensorSlot:
    """Where a tensor of a structure stands in a list of tensors."""

    index: int


def places(shape: Any) -> Any:
    """A structure as a node's argument: a place is its number in a tuple of one."""
    if isinstance(shape, TensorSlot):
        return ("tensor", shape.index)
    if isinstance(shape, tuple | list):
        kind = "list" if isinstance(shape, list) else "tuple"
        return (kind, *(places(part) for part in shape))
    if isinstance(shape, dict):
        return ("dict", *((key, places(part)) for key, part in shape.items()))
    return ("none",)
