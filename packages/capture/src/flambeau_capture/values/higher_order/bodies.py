"""Bodies of higher-order operators, each a graph of its own.

In: a function value and what it is called with. Out: `Captured`, the graph as an attribute of the
one around it, with the tensors that it takes from there. Invariant: a body has no side effect on
objects of the program, leaves the modes of torch as it found them, and answers tensors and plain
Python values in tuples, lists and dicts; whatever else it does is a graph break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import GraphBuilder
from flambeau_capture.values.base import NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue
from flambeau_capture.values.tensors.tensor import TensorValue

Enter = Callable[[TensorValue], torch.Tensor]


@dataclass(frozen=True)
class Captured:
    """A body. `lifted` are nodes of the graph around it: its last arguments."""

    node: fx.Node
    lifted: list[fx.Node]
    result: Value


class Inside:
    """Interpretation inside a body, for the extent of a block."""

    def __init__(self, tx: Tracer, what: str, outer: GraphBuilder | None = None) -> None:
        self.tx = tx
        self.what = what
        self.before = tx.graph
        self.body = GraphBuilder(outer or tx.graph)
        self._apart = tx.heap.separate()
        self._changes: dict[int, Any] = {}

    def __enter__(self) -> GraphBuilder:
        self.tx.graph = self.body
        self._changes = self._apart.__enter__()
        self._grad_mode = torch.is_grad_enabled()
        return self.body

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.tx.graph = self.before
        self._apart.__exit__(None, None, None)
        if self._changes:
            self.tx.heap.changed()  # capture starts again: what was changed is not kept
            if error is None:
                changed = ", ".join(_describe(value) for value in self._changes.values())
                raise Break("FB0025", f"{self.what} changes {changed}")
        if error is None and torch.is_grad_enabled() != self._grad_mode:
            self.tx.heap.changed()
            raise Break("FB0025", f"{self.what} leaves the grad mode changed")


def _describe(value: Any) -> str:
    return value.describe() if isinstance(value, Value) else type(value).__name__


def capture_body(tx: Tracer, what: str, run: Callable[[GraphBuilder], Value]) -> Captured:
    """The graph of what `run` interprets; its arguments are those that `run` adds to the body."""
    with Inside(tx, what) as body:
        result = run(body)
        body.set_output(structure(tx, result, what))
    module, lifted = body.finish_body()
    return Captured(tx.graph.add_module(module, "body"), lifted, result)


def structure(tx: Tracer, value: Value, what: str) -> Any:
    """A result as a graph's output: nodes and constants in containers."""
    if isinstance(value, TensorValue):
        return tx.graph.localize(value.node)
    if isinstance(value, SequenceValue) and value.cls in (tuple, list, torch.Size):
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
        example = value.fake if enter is None else enter(value)
        given.append(value)
        node = body.add_example(f"arg{len(given) - 1}", example)
        return TensorValue(node, python_class=value.cls), TensorSlot(len(given) - 1)
    if isinstance(value, SequenceValue) and value.cls in (tuple, list):
        pairs = [arguments(body, part, given, enter) for part in value.parts()]
        inner, shape = [one for one, _ in pairs], [other for _, other in pairs]
        return (ListValue(inner), shape) if value.cls is list else (TupleValue(inner), tuple(shape))
    if isinstance(value, DictValue) and value.cls is dict:
        named = {
            constant_of(key): arguments(body, item, given, enter) for key, item in value.entries()
        }
        made = DictValue([(Constant(key), one) for key, (one, _) in named.items()], tx=value._tx)
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
