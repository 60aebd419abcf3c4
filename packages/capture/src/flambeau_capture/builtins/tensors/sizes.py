"""Torch functions on dynamic shapes that torch would specialise.

In: symbols, alone or in lists. Out: tensors and numbers in which they stay open. Invariant: where
nothing is open, torch's function is what the graph holds.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import SequenceValue
from flambeau_capture.values.functions.callables import RULES, handles
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue


def tensor_of_open(tx: Tracer, data: Value, kwargs: Kwargs) -> Value | None:
    """`torch.tensor` of a symbol, or of lists that hold one among numbers; None for anything else.

    Each number is a tensor of its own, and lists stack them.
    """
    if not set(kwargs) <= {"dtype", "device"} or not _holds_open(data):
        return None
    leaves = _leaves(data)
    if leaves is None:
        return None
    named = dict(kwargs)
    if "dtype" not in named:
        whole = all(leaf.cls is int for leaf in leaves)
        named["dtype"] = tx.wrap_new(torch.int64 if whole else torch.get_default_dtype())
    return _filled(tx, data, named)


def _holds_open(value: Value) -> bool:
    if isinstance(value, SequenceValue):
        return any(_holds_open(part) for part in value.parts())
    return isinstance(value, SymbolValue)


def _leaves(value: Value) -> list[Value] | None:
    """The numbers in nested lists; None where anything is neither, or where lists differ."""
    if not isinstance(value, SequenceValue):
        plain = isinstance(value, SymbolValue | Constant) and value.cls in (int, float)
        return [value] if plain else None
    parts = [_leaves(part) for part in value.parts()]
    kinds = {isinstance(part, SequenceValue) for part in value.parts()}
    counts = {None if part is None else len(part) for part in parts}
    if len(kinds) != 1 or len(counts) != 1 or None in counts:
        return None
    return [leaf for part in parts for leaf in part or ()]


def _filled(tx: Tracer, value: Value, named: dict[str, Value]) -> Value:
    if not isinstance(value, SequenceValue):
        size = tx.wrap_new(())
        return graph_call(tx, "call_function", torch.full, [size, value], named)
    parts: list[Any] = [_filled(tx, part, named) for part in value.parts()]
    return graph_call(tx, "call_function", torch.stack, [type(value)(parts)], {})


@handles(torch.sym_float)
def _sym_float(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    answered: Value = RULES[float].handler(tx, args, kwargs)
    return answered
