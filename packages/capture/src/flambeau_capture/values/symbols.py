"""Numbers that the graph leaves open: sizes of tensors, and numbers that vary from call to call.

In: symbolic numbers of torch. Out: `SymbolValue`, `symbol_operator`. Invariant: a symbol is a
constant to everything that knows no symbols: reading its `value` fixes it, and a guard says so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from flambeau_capture.shapes import Shapes
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant

NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)

#: on integers torch's symbols follow Python exactly
_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: what the graph computes with Python's own floats, in the program's order
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class SymbolValue(Constant):
    """A symbolic integer or float. `node` is given where the graph has computed it."""

    def __init__(self, number: Any, shapes: Shapes, node: fx.Node | None = None) -> None:
        super().__init__(None, shapes.source(number))
        self.number = number
        self._shapes = shapes
        self._computed = node
        self._known: list[Any] = []

    @property
    def value(self) -> Any:
        if not self._known:
            self._known.append(self._shapes.value(self.number))
        return self._known[0]

    @property
    def cls(self) -> type:
        return float if isinstance(self.number, torch.SymFloat) else int

    def describe(self) -> str:
        return f"Symbol({self.number})"

    def truth(self, tx: Tracer) -> bool:
        if isinstance(self.number, torch.SymFloat):
            return bool(self.value)
        return bool(self.number != 0)

    def graph_argument(self) -> Any:
        if self._known:
            return self._known[0]
        if self._computed is not None:
            return self._computed
        if isinstance(self.number, torch.SymFloat) and self.source is None:
            return self.value
        return self._shapes.node(self.number)

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
            return
        argument = self.graph_argument()
        if isinstance(argument, fx.Node) and not self._shapes.graph_is_empty():
            writer.load_graph_output(argument)
        else:
            writer.load_const(self.value)


def symbol_value(tx: Tracer, number: Any, node: fx.Node | None = None) -> Value:
    """The value of a number that torch answered."""
    if isinstance(number, torch.SymBool):
        return Constant(bool(number))
    plain = number.node.maybe_as_int() if isinstance(number, torch.SymInt) else None
    return Constant(plain) if plain is not None else SymbolValue(number, tx.shapes, node)


def symbol_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """An operation on numbers of which one is symbolic; None: on their values, then."""
    numbers = [_number(value) for value in (left, right)]
    if any(number is None for number in numbers):
        return None
    floats = any(isinstance(number, float | torch.SymFloat) for number in numbers)
    if symbol in _COMPARED and not floats:
        return Constant(bool(_COMPARED[symbol](*numbers)))
    if symbol in _INTEGER and not floats:
        if symbol in ("//", "%") and not numbers[1]:
            return None
        return _wrapped(tx, _INTEGER[symbol](*numbers), None)
    if symbol in _FLOAT:
        return _float_operator(tx, symbol, numbers, [left, right])
    return None


def _number(value: Value) -> Any:
    if isinstance(value, SymbolValue):
        return value.number
    if type(value) is Constant and value.cls in (int, float):
        return value.value
    return None


def _wrapped(tx: Tracer, number: Any, node: fx.Node | None) -> Value:
    return symbol_value(tx, number, node) if isinstance(number, NUMBERS) else Constant(number)


def _float_operator(
    tx: Tracer, symbol: str, numbers: list[Any], values: list[Value]
) -> Value | None:
    if symbol == "/" and type(numbers[1]) in (int, float) and not numbers[1]:
        return None
    arguments = [
        value.graph_argument() if isinstance(value, SymbolValue) else number
        for value, number in zip(values, numbers, strict=True)
    ]
    if not any(isinstance(argument, fx.Node) for argument in arguments):
        return None
    fn = _FLOAT[symbol]
    node = tx.graph.outermost.number_call(fn, tuple(arguments))
    return _wrapped(tx, node.meta["val"], node)
