"""Python numbers that depend on data, where they are no sizes: the graph computes them.

In: an operation on Python numbers of which one depends on data. Out: the same on tensors of no
dimension, and the number read off the result. Invariant: Python's own number to the bit, in the
program's order: sums, products, quotients and roots of floats are exact in both. Where Python
raises, the graph does, and such a call runs eagerly.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.graph_calls import (
    graph_call,
    operator_name,
    require_number,
    tensor_call,
)
from flambeau_capture.values.tensors.number_ranges import note_computation, range_of
from flambeau_capture.values.tensors.symbolic_numbers import (
    SymbolValue,
    symbol_operator,
    symbol_value,
)
from flambeau_capture.values.tensors.tensor import TensorValue

#: of floats
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_ZERO = Constant(0)


def _is_by_data(value: Value) -> bool:
    return isinstance(value, SymbolValue) and value.by_data


def float_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """A float that Python computes of two numbers, one of which depends on data; None: it is no
    such operation."""
    fn, kinds = _OPERATIONS.get(symbol), {left.cls, right.cls}
    if fn is None or not (_is_by_data(left) or _is_by_data(right)) or not kinds <= {int, float}:
        return None
    if float not in kinds and symbol != "/":
        return None
    if symbol == "/" and not _checked(tx, "!=", right, "a division by zero"):
        return None
    made = _read(tx, tensor_call(tx, "call_function", fn, [_float(tx, left), _float(tx, right)]))
    return note_computation(tx, made, symbol, left, right)


def float_call(tx: Tracer, fn: Any, argument: Value) -> Value | None:
    """The same for a function of one number."""
    if not _is_by_data(argument) or argument.cls not in (int, float):
        return None
    if fn is float:
        return argument if argument.cls is float else _read(tx, _float(tx, argument))
    if fn is math.fabs:
        made = _read(tx, tensor_call(tx, "call_function", torch.abs, [_float(tx, argument)]))
        return note_computation(tx, made, "abs", argument)
    if fn is math.sqrt and _checked(tx, ">=", argument, "a root of a negative number"):
        return _read(tx, tensor_call(tx, "call_function", torch.sqrt, [_float(tx, argument)]))
    return None


def selected(tx: Tracer, condition: Value, one: Value, other: Value) -> Value | None:
    """The first of two numbers of one type where a condition on data holds, else the second."""
    if not _is_by_data(condition) or one.cls is not other.cls or one.cls not in (int, float):
        return None
    sides = tx.shapes.sides(condition.number) if isinstance(condition, SymbolValue) else None
    if sides is None:
        return None
    compare, numbers = sides
    compared = [
        _tensor(tx, SymbolValue(number, tx.shapes))
        if isinstance(number, torch.SymInt | torch.SymFloat)
        else Constant(number)
        for number in numbers
    ]
    given = [
        tensor_call(tx, "call_function", compare, compared),
        *(_tensor(tx, each) for each in (one, other)),
    ]
    return _read(tx, tensor_call(tx, "call_function", torch.where, given))


def positions(tx: Tracer, tensor: TensorValue) -> TensorValue | None:
    """The positions that `nonzero` gives of a mask of one dimension, where the program goes through
    them: all there are, which the graph checks, and so constants. None: they are none, or many."""
    count = tensor.fake.shape[0]
    if not isinstance(count, torch.SymInt) or operator_name(tensor.node.target) not in _POSITIONS:
        return None
    mask = tensor.node.args[0]
    of = mask.meta["val"] if isinstance(mask, fx.Node) else None
    if of is None or of.dim() != 1 or not isinstance(of.shape[0], int) or of.shape[0] > _MOST:
        return None
    if not compat.own_data_symbols(count) or not tx.answers_in_general():
        return None
    said = "a loop over the positions of what is true, as if all were"
    if not require_number(tx, symbol_value(tx, count == of.shape[0]), said):
        return None
    named = {"device": Constant(of.device)} if of.device.type != "cpu" else {}
    all_there_are = Constant(of.shape[0])
    made = graph_call(tx, "call_function", torch.arange, [all_there_are], named)
    return tensor_call(tx, "call_method", "unsqueeze", [made, Constant(1)])


_POSITIONS = frozenset({"nonzero", "argwhere"})
_MOST = 256
"""A loop of more iterations is no part of a graph."""


def _checked(tx: Tracer, symbol: str, number: Value, says: str) -> bool:
    """Whether a number compares so with zero, which the graph checks where data decides it."""
    if symbol == "!=" and _is_by_data(number):
        low, high = range_of(tx, number)
        if low > 0 or high < 0:
            return True
    condition = symbol_operator(tx, symbol, number, _ZERO)
    if condition is None:
        return bool(isinstance(number, Constant) and _COMPARED[symbol](number.value, 0))
    if _is_by_data(condition):
        return require_number(tx, condition, says)
    return condition.truth(tx)


_COMPARED = {"!=": operator.ne, ">=": operator.ge}


def _tensor(tx: Tracer, value: Value) -> Value:
    """A number as a tensor of no dimension, of int64 or float64."""
    assert isinstance(value, Constant)
    if not isinstance(value, SymbolValue):
        dtype = torch.int64 if value.cls is int else torch.float64
        named = {"dtype": Constant(dtype)}
        return graph_call(tx, "call_function", torch.scalar_tensor, [value], named)
    return TensorValue(tx.graph.outermost.number_as_tensor(value.graph_argument()))


def _float(tx: Tracer, value: Value) -> Value:
    """A number as an operand of float64; one that does not depend on data stays as it is."""
    if not _is_by_data(value):
        return value
    made = _tensor(tx, value)
    return made if value.cls is float else tensor_call(tx, "call_method", "double", [made])


def _read(tx: Tracer, tensor: Value) -> Value:
    return graph_call(tx, "call_method", "item", [tensor], {})
