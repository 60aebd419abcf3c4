"""Choices by open sizes that are left open: the larger of two numbers, a slice that may be cut off.

In: a choice that Python or an operator makes by comparing open numbers. Out: the same by `sym_max`
and `sym_min`; None where it is decided, and guarded. Invariant: a choice is left open where it has
come out otherwise at this line before, or where the frame itself changes what it depends on: what
is the same in every call stays as plain as it was.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.sequences import SliceValue, TupleValue
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue, symbol_value
from flambeau_capture.values.tensors.tensor import TensorValue

Number = int | torch.SymInt


def integer(value: Value) -> Number | None:
    """A number whose comparisons may be left open."""
    if isinstance(value, SymbolValue):
        number = value.number
        return number if isinstance(number, torch.SymInt) and not value.by_data else None
    plain = value.value if type(value) is Constant and value.cls is int else None
    return plain if type(plain) is int else None


#: comparisons of integers, and as differences that are positive where they hold
_COMPARED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "<": (operator.lt, lambda one, other: other - one),
    "<=": (operator.le, lambda one, other: other - one + 1),
    ">": (operator.gt, lambda one, other: one - other),
    ">=": (operator.ge, lambda one, other: one - other + 1),
}


class OpenTruth(Constant):
    """What a comparison of open integers came out as. Reading it decides the comparison."""

    def __init__(self, symbol: str, one: Any, other: Any, condition: torch.SymBool) -> None:
        super().__init__(bool(compat.hint(condition)), None, self._decide)
        self._condition = condition
        self._difference = _COMPARED[symbol][1](one, other)

    @property
    def cls(self) -> type:
        return bool

    def _decide(self) -> None:
        bool(self._condition)  # which notes it

    @property
    def now(self) -> bool:
        """What it is in this call, without deciding it."""
        return bool(self._value)

    def indicator(self) -> Any:
        """1 where it holds and 0 where it does not, as an open integer."""
        return torch.sym_min(torch.sym_max(self._difference, 0), 1)


class UndecidedValue(Value):
    """What a variable holds after a branch that is not decided."""

    def __init__(self, condition: OpenTruth, value: Value | None, nodes: Sequence[fx.Node]) -> None:
        self._condition, self._value, self._nodes = condition, value, nodes

    def describe(self) -> str:
        return "a variable of a branch that is not decided"

    def decided(self) -> Value | None:
        """What it holds, now that it is read; None: it is not bound."""
        _ = self._condition.value  # which decides it
        for node in self._nodes:
            node.meta.pop("projection", None)
        return self._value


def compared(tx: Tracer, symbol: str, one: Value, other: Value) -> Value | None:
    """A comparison of open integers that is left open; None: it is decided."""
    left, right = integer(one), integer(other)
    if symbol not in _COMPARED or left is None or right is None:
        return None
    condition = _COMPARED[symbol][0](left, right)
    if not isinstance(condition, torch.SymBool) or not tx.stays_open(condition, "comparison"):
        return None
    return OpenTruth(symbol, left, right, condition)


def extreme(tx: Tracer, symbol: str, one: Value, other: Value) -> Value | None:
    """The smaller (`<`) or the larger of two integers, one of them open."""
    left, right = integer(one), integer(other)
    if left is None or right is None or not isinstance(left + right, torch.SymInt):
        return None
    for condition, value in ((left <= right, one), (left >= right, other)):
        if compat.known_condition(condition) is True:  # it may be so only where they are equal
            return value if symbol == "<" else other if value is one else one
    if not tx.stays_open(left < right, "extreme"):
        return None
    choose: Any = torch.sym_min if symbol == "<" else torch.sym_max
    return symbol_value(tx, choose(left, right))


def cut_off(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`x[..., -n:]` of an open size, by bounds within it."""
    if len(args) != 2 or kwargs or not isinstance(args[0], TensorValue):
        return None
    keys = list(args[1].parts()) if isinstance(args[1], TupleValue) else [args[1]]
    dims = _dimensions(keys, args[0].fake.dim())
    if not all(0 <= dim < args[0].fake.dim() for dim in dims.values()):
        return None  # the operator refuses it in its own words
    found = list(keys)
    for place, dim in dims.items():
        size = args[0].fake.shape[dim]
        if isinstance(size, torch.SymInt) and not compat.own_data_symbols(size):
            found[place] = _within(tx, keys[place], size)
    if all(one is other for one, other in zip(found, keys, strict=True)):
        return None
    return graph_call(tx, "call_function", operator.getitem, [args[0], TupleValue(found)], {})


def _dimensions(keys: list[Value], rank: int) -> dict[int, int]:
    """The dimension that each slice is of, for slices that no tensor comes before."""
    found: dict[int, int] = {}
    kinds = [_kind(key) for key in keys]
    taken = sum(kind in ("slice", "int") for kind in kinds)
    dim = 0
    for place, kind in enumerate(kinds):
        if kind == "slice":
            found[place] = dim
        elif kind == "ellipsis":
            if "other" in kinds:
                break
            dim += rank - taken
        elif kind == "other":
            break
        dim += kind in ("slice", "int")
    return found


def _kind(key: Value) -> str:
    if isinstance(key, SliceValue):
        return "slice"
    if is_none(key):
        return "none"
    if type(key) is Constant and key.cls is type(Ellipsis):
        return "ellipsis"
    return "int" if key.cls is int else "other"


def _within(tx: Tracer, key: Value, size: torch.SymInt) -> Value:
    """A slice with its bounds within a size, where whether they are is left open."""
    assert isinstance(key, SliceValue)
    start, stop, step = key.bounds
    if not is_none(step) and not (type(step) is Constant and step.value == 1):
        return key
    bounds = [_bound(tx, start, size), _bound(tx, stop, size)]
    return key if bounds == [start, stop] else SliceValue(bounds[0], bounds[1], step)


def _bound(tx: Tracer, value: Value, size: torch.SymInt) -> Value:
    number = None if is_none(value) else integer(value)
    if number is None or compat.is_extreme(number):
        return value
    known = isinstance(number, int)
    if compat.known_condition(number < 0) is True:
        inside = size + number >= 0
        if tx.stays_open(inside, "slice", known):
            return symbol_value(tx, torch.sym_max(size + number, 0))
    elif compat.known_condition(number >= 0) is True:
        inside = number <= size
        if tx.stays_open(inside, "slice", known):
            return symbol_value(tx, torch.sym_min(size, number))
    return value
