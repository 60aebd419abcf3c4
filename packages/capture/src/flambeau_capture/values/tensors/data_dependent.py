"""Data-dependent operators on tensors with constant data.

In: an operation that fails on fake tensors, or whose result's size depends on data. Out: its
result, or the same operation written with what is known: numbers for tensors, places for masks.
Invariant: what is recorded gives what the operation gives on the data that was known.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.slices import SliceValue
from flambeau_capture.values.containers.tuples import TupleValue
from flambeau_capture.values.tensors.constant_data import (
    PURE,
    compute,
    known_data,
    of_torch,
    tensors_of,
)
from flambeau_capture.values.tensors.graph_calls import (
    graph_call,
    operator_name,
)
from flambeau_capture.values.tensors.tensor import TensorValue

_INDEXING = (operator.getitem, operator.setitem)


def answer(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """The result of an operation that fails where data is not known; None: nothing helps."""
    for rule in (_with_numbers, _with_indices, _with_size, _whole):
        found = rule(tx, op, target, args, kwargs)
        if found is not None:
            return found
    return None


def _again(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    try:
        return graph_call(tx, op, target, args, kwargs)
    except Break:
        return None


def _with_numbers(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """`torch.arange(t)` with the number that t is known to be."""
    changed = 0

    def number(value: Value, inside: bool) -> Value:
        nonlocal changed
        if isinstance(value, TensorValue):
            if not inside or value.fake.dim() or value.fake.dtype == torch.bool:
                return value
            found = known_data(tx, value)
            changed += found is not None
            return value if found is None else Constant(found.item())
        if type(value) is SliceValue:
            start, stop, step = (number(bound, True) for bound in value.bounds)
            return SliceValue(start, stop, step)
        if isinstance(value, ListValue) and value.source is None:
            return ListValue([number(part, inside) for part in value.parts()])
        if isinstance(value, TupleValue):
            return TupleValue([number(part, inside) for part in value.parts()], value.cls)
        return value

    first = target in _INDEXING
    given = [number(arg, not first) for arg in args]
    named = {name: number(arg, not first) for name, arg in kwargs.items()}
    return _again(tx, op, target, given, named) if changed else None


def _with_indices(
    tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs, assume: bool = True
) -> Value | None:
    """`x[mask]` by the places at which the mask is known to be true."""
    if target not in _INDEXING or not isinstance(args[0], TensorValue):
        return None
    keys = args[1].parts() if type(args[1]) is TupleValue else [args[1]]
    placed: list[Value] = []
    for key in keys:
        is_mask = isinstance(key, TensorValue) and key.fake.dtype in (torch.bool, torch.uint8)
        if not is_mask or not isinstance(key, TensorValue) or key.fake.dim() == 0:
            placed.append(key)
            continue
        mask = known_data(tx, key, assume)
        if mask is None:
            return None
        placed += [_constant(tx, each) for each in mask.nonzero(as_tuple=True)]
    if len(placed) == len(keys) and all(new is old for new, old in zip(placed, keys)):
        return None
    return _again(tx, op, target, [args[0], TupleValue(placed), *args[2:]], kwargs)


def write(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[mask] = values` likewise: how many values there are depends on data otherwise, which a
    graph may hold and few backends take."""
    if len(args) != 3 or not isinstance(args[2], TensorValue) or args[2].fake.dim() == 0:
        return None
    return _with_indices(tx, "call_function", operator.setitem, args, kwargs, assume=False)


def _with_size(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """`repeat_interleave` with the size of its result, where the repeats are known."""
    repeats = kwargs.get("repeats", args[1] if len(args) > 1 else None)
    if operator_name(target) != "repeat_interleave" or "output_size" in kwargs:
        return None
    found = known_data(tx, repeats) if isinstance(repeats, TensorValue) else None
    if found is None:
        return None
    if found.numel() == 1 and isinstance(args[0], TensorValue):
        return None  # repeats each element so often: the size is not the sum
    return _again(tx, op, target, args, {**kwargs, "output_size": Constant(int(found.sum()))})


def _whole(tx: Tracer, op: str, target: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """The result itself, of an operation on nothing but what is known."""
    if operator_name(target) not in PURE or not of_torch(target) or "out" in kwargs:
        return None
    try:
        plain = [_plain(tx, arg) for arg in args]
        named = {name: _plain(tx, arg) for name, arg in kwargs.items()}
    except (NotConcrete, Break):
        return None
    result = compute(target, plain, named)
    return None if result is None else _value(tx, result)


def _plain(tx: Tracer, value: Value) -> Any:
    if isinstance(value, TensorValue):
        found = known_data(tx, value)
        if found is None:
            raise NotConcrete(value.describe())
        return found
    if isinstance(value, ListValue | TupleValue):
        items = [_plain(tx, part) for part in value.parts()]
        return items if isinstance(value, ListValue) else tuple(items)
    if isinstance(value, SliceValue):
        return slice(*(_plain(tx, bound) for bound in value.bounds))
    found = value.graph_argument()
    if isinstance(found, fx.Node):
        raise NotConcrete(value.describe())
    return found


def _value(tx: Tracer, result: Any) -> Value:
    if isinstance(result, torch.Tensor):
        return _constant(tx, result)
    if type(result) in (tuple, list) and any(True for _ in tensors_of(result)):
        items = [_value(tx, item) for item in result]
        return ListValue(items) if type(result) is list else TupleValue(items)
    return tx.wrap_new(result)


def _constant(tx: Tracer, tensor: torch.Tensor) -> Value:
    """A tensor of known data, made anew each time the graph runs."""
    builder = tx.graph.outermost
    node = builder.add_attribute(tensor, "known")
    builder.constants[node] = tensor
    return graph_call(tx, "call_method", "clone", [TensorValue(node)], {})
