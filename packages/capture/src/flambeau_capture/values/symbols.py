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

from flambeau_capture.guards import Term
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
#: what the graph computes with Python's own floats, in the program's order, and guards do
_FLOAT: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "+": (operator.add, "FADD"),
    "-": (operator.sub, "FSUB"),
    "*": (operator.mul, "FMUL"),
    "/": (operator.truediv, "FDIV"),
}
#: comparisons of floats as guards ask them, and whether the sides are swapped
_FLOAT_COMPARED: dict[str, tuple[str, bool]] = {
    "==": ("FEQ", False),
    "!=": ("FNE", False),
    "<": ("FLT", False),
    "<=": ("FLE", False),
    ">": ("FLT", True),
    ">=": ("FLE", True),
}
_ZERO = Term.of_float(0.0, 0.0)


class SymbolValue(Constant):
    """A symbolic integer or float. `node` is given where the graph has computed it, `term` where
    guards can."""

    def __init__(
        self,
        number: Any,
        shapes: Shapes,
        node: fx.Node | None = None,
        term: Term | None = None,
    ) -> None:
        super().__init__(None, shapes.source(number))
        self.term = term if term is not None else shapes.term(number)
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
        if not isinstance(self.number, torch.SymFloat):
            return bool(self.number != 0)
        if self._known or self.term is None:
            return bool(self.value)
        return self._shapes.compare("FNE", self.term, _ZERO)

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


def symbol_value(
    tx: Tracer, number: Any, node: fx.Node | None = None, term: Term | None = None
) -> Value:
    """The value of a number that torch answered."""
    if isinstance(number, torch.SymBool):
        return Constant(bool(number))
    plain = number.node.maybe_as_int() if isinstance(number, torch.SymInt) else None
    return Constant(plain) if plain is not None else SymbolValue(number, tx.shapes, node, term)


def symbol_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """An operation on numbers of which one is symbolic; None: on their values, then."""
    numbers = [_number(value) for value in (left, right)]
    if any(number is None for number in numbers):
        return None
    floats = any(isinstance(number, float | torch.SymFloat) for number in numbers)
    if symbol in _COMPARED:
        if not floats:
            return Constant(bool(_COMPARED[symbol](*numbers)))
        return _compared(tx, symbol, left, right)
    if symbol in _INTEGER and not floats:
        if symbol in ("//", "%") and not numbers[1]:
            return None
        return _wrapped(tx, _INTEGER[symbol](*numbers))
    if symbol in _FLOAT:
        return _float_operator(tx, symbol, numbers, [left, right])
    return None


def _number(value: Value) -> Any:
    if isinstance(value, SymbolValue):
        return value.number
    if type(value) is Constant and value.cls in (int, float):
        return value.value
    return None


def _term(tx: Tracer, value: Value) -> Term | None:
    return value.term if isinstance(value, SymbolValue) else tx.shapes.term(_number(value))


def _wrapped(
    tx: Tracer, number: Any, node: fx.Node | None = None, term: Term | None = None
) -> Value:
    if not isinstance(number, NUMBERS):
        return Constant(number)
    return symbol_value(tx, number, node, term)


def _compared(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """A comparison of which one side at least is a float: Python's own, not torch's, answers."""
    one, other = _term(tx, left), _term(tx, right)
    if one is None or other is None:
        return None
    op, swapped = _FLOAT_COMPARED[symbol]
    return Constant(tx.shapes.compare(op, *((other, one) if swapped else (one, other))))


def _float_operator(
    tx: Tracer, symbol: str, numbers: list[Any], values: list[Value]
) -> Value | None:
    terms = [_term(tx, value) for value in values]
    if symbol == "/" and not _is_divisor(tx, numbers[1], terms[1]):
        return None
    arguments = [
        value.graph_argument() if isinstance(value, SymbolValue) else number
        for value, number in zip(values, numbers, strict=True)
    ]
    if not any(isinstance(argument, fx.Node) for argument in arguments):
        return None
    fn, op = _FLOAT[symbol]
    node = tx.graph.outermost.number_call(fn, tuple(arguments))
    one, other = terms
    term = one.combine(op, other) if one is not None and other is not None else None
    return _wrapped(tx, node.meta["val"], node, term)


def _is_divisor(tx: Tracer, number: Any, term: Term | None) -> bool:
    """Whether a number is not zero, which a guard then says: the program's error is its own."""
    if isinstance(number, torch.SymInt):
        return bool(number != 0)
    if not isinstance(number, torch.SymFloat):
        return bool(number)
    return term is not None and tx.shapes.compare("FNE", term, _ZERO)
