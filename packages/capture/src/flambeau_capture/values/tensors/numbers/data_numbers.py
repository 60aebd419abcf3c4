"""Python numbers that depend on data, where they are no sizes: the graph computes them.

In: an operation on Python numbers of which one depends on data. Out: the same on tensors of no
dimension, and the number read off the result. Invariant: Python's own number to the bit, in the
program's order: sums, products, quotients and roots of floats are exact in both. Where Python
raises, the graph does, and such a call runs eagerly.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.graph.functions import NotInGeneral
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.graph_calls import (
    check_all,
    graph_call,
    require_number,
    tensor_call,
    version_of,
)
from flambeau_capture.values.tensors.numbers.ranges import is_certain, note_computation
from flambeau_capture.values.tensors.refused_calls import operator_name
from flambeau_capture.values.tensors.symbolic_numbers import (
    BY_PYTHON,
    SymbolValue,
    symbol_operator,
    symbol_value,
)
from flambeau_capture.values.tensors.tensor import TensorValue

#: that a graph computes of floats
_OF_FLOATS = frozenset("+-*/")
#: of floats; `round` as Python's, half to even
_TO_INTEGER: Mapping[Any, Callable[[Any], Any]] = {
    int: torch.trunc,
    math.trunc: torch.trunc,
    math.floor: torch.floor,
    math.ceil: torch.ceil,
    round: torch.round,
}
_ZERO = Constant(0)


def is_by_data(value: Value) -> bool:
    return isinstance(value, SymbolValue) and value.by_data


def float_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """A float that Python computes of two numbers, one of which depends on data; None: it is no
    such operation."""
    kinds = {left.cls, right.cls}
    if symbol not in _OF_FLOATS or not kinds <= {int, float}:
        return None
    if not (is_by_data(left) or is_by_data(right)):
        return None
    if float not in kinds and symbol != "/":
        return None
    if symbol == "/" and not checked(tx, "!=", right, "a division by zero"):
        return None
    floats = [_float(tx, left), _float(tx, right)]
    made = read_number(tx, tensor_call(tx, "call_function", BY_PYTHON[symbol], floats))
    return note_computation(tx, made, symbol, left, right)


def float_call(tx: Tracer, fn: Any, argument: Value) -> Value | None:
    """The same for a function of one number."""
    if not is_by_data(argument) or argument.cls not in (int, float):
        return None
    if fn is float:
        return argument if argument.cls is float else read_number(tx, _float(tx, argument))
    if fn is math.fabs:
        made = read_number(tx, tensor_call(tx, "call_function", torch.abs, [_float(tx, argument)]))
        return note_computation(tx, made, "abs", argument)
    if fn in _TO_INTEGER and argument.cls is float:
        made = tensor_call(tx, "call_function", _TO_INTEGER[fn], [_float(tx, argument)])
        size = tensor_call(tx, "call_function", torch.abs, [made])
        small = tensor_call(tx, "call_function", operator.le, [size, Constant(2.0**53)])
        said = "a float that is no integer of 53 bits"
        check_all(tx, small, NotInGeneral, (said,))  # nan and infinities, too
        dtype = Constant(torch.int64)
        return read_number(tx, tensor_call(tx, "call_method", "to", [made, dtype]))
    if fn is math.sqrt and checked(tx, ">=", argument, "a root of a negative number"):
        return read_number(tx, tensor_call(tx, "call_function", torch.sqrt, [_float(tx, argument)]))
    return None


def selected(tx: Tracer, condition: Value, one: Value, other: Value) -> Value | None:
    """The first of two numbers of one type where a condition on data holds, else the second."""
    if not is_by_data(condition) or one.cls is not other.cls or one.cls not in (int, float):
        return None
    found = condition_tensor(tx, condition)
    if found is None:
        return None
    given = [found, number_tensor(tx, one), number_tensor(tx, other)]
    return read_number(tx, tensor_call(tx, "call_function", torch.where, given))


def is_as_in_general(tx: Tracer, symbol: str, one: Value, other: Value, better: Value) -> bool:
    """Whether `max(1, count)` of a tensor is the count, as it is in general: the graph checks it.
    Python decides it by the tensor's number, and what it gives is of another type for nothing."""
    tensors = [each for each in (one, other) if isinstance(each, TensorValue)]
    least = other if one in tensors else one
    if symbol != ">" or len(tensors) != 1 or not isinstance(better, TensorValue):
        return False
    if (
        not isinstance(least, Constant)
        or least.as_python() not in (0, 1)
        or better.fake.numel() != 1
    ):
        return False
    if not tx.assumes():
        return False
    fn = operator.gt if least is other else operator.ge  # of two that are equal, the first
    above = tensor_call(tx, "call_function", fn, [tensors[0], least])
    check_all(tx, above, NotInGeneral, ("the maximum of a count and a number is that number",))
    return True


def condition_tensor(tx: Tracer, condition: Value) -> TensorValue | None:
    """A condition on numbers that depend on data as a tensor; None: it is no comparison."""
    sides = tx.shapes.sides(condition.number) if isinstance(condition, SymbolValue) else None
    if sides is None:
        return None
    compare, numbers = sides
    compared = [
        number_tensor(tx, SymbolValue(number, tx.shapes))
        if isinstance(number, torch.SymInt | torch.SymFloat)
        else Constant(number)
        for number in numbers
    ]
    return tensor_call(tx, "call_function", compare, compared)


def rows(tx: Tracer, tensor: TensorValue) -> TensorValue | None:
    """The rows of a tensor, where Python goes through as many as data decides: as many as there are
    in general, which the graph checks. None: that is no number that is known, or a large one."""
    count = tensor.fake.shape[0]
    if not isinstance(count, torch.SymInt) or not compat.own_data_symbols(count):
        return None
    rule = _ROWS.get(operator_name(tensor.node.target))
    if rule is None and tensor.fake.dim() == 1:  # sums of counts are as many
        counter = next(filter(functools.partial(_counts_as_many, count), _nodes(tensor)), None)
        return None if counter is None else _counts(tx, tensor, count, counter)
    return None if rule is None else rule(tx, tensor, count)


def _nodes(tensor: TensorValue) -> Iterable[fx.Node]:
    return tensor.node.graph.find_nodes(op="call_method", target="bincount") + (
        tensor.node.graph.find_nodes(op="call_function", target=torch.bincount)
    )


def _counts_as_many(count: torch.SymInt, node: fx.Node) -> bool:
    size = node.meta["val"].shape[0]
    return isinstance(size, torch.SymInt) and compat.expression(size) == compat.expression(count)


def _positions(tx: Tracer, tensor: TensorValue, count: torch.SymInt) -> TensorValue | None:
    """The positions that `nonzero` gives of a mask of one dimension: all there are, and so
    constants."""
    of = _short_mask(tensor)
    said = "a loop over the positions of what is true, as if all were"
    if of is None or not _is_in_general(tx, count, of.shape[0], said):
        return None
    made = _every_position(tx, of)
    return tensor_call(tx, "call_method", "unsqueeze", [made, Constant(1)])


def _short_mask(tensor: TensorValue) -> torch.Tensor | None:
    """The mask of one dimension whose positions `nonzero` gives, where it may be unrolled."""
    mask = tensor.node.args[0]
    of = mask.meta["val"] if isinstance(mask, fx.Node) else None
    if of is None or of.dim() != 1 or not isinstance(of.shape[0], int) or of.shape[0] > MOST_TURNS:
        return None
    return of if isinstance(of, torch.Tensor) else None


def _every_position(tx: Tracer, of: torch.Tensor) -> TensorValue:
    named = {"device": Constant(of.device)} if of.device.type != "cpu" else {}
    made = graph_call(tx, "call_function", torch.arange, [Constant(of.shape[0])], named)
    assert isinstance(made, TensorValue)
    return made


def positions_there_may_be(
    tx: Tracer, tensor: TensorValue
) -> tuple[TensorValue, TensorValue] | None:
    """For what `nonzero` gives of a short mask: every position as its rows would be, and in a row.
    None: it is something else."""
    count = tensor.fake.shape[0] if tensor.fake.dim() == 2 else None
    if not isinstance(count, torch.SymInt) or not compat.own_data_symbols(count):
        return None
    is_of_positions = _ROWS.get(operator_name(tensor.node.target)) is _positions
    of = _short_mask(tensor) if is_of_positions else None
    if of is None:
        return None
    made = _every_position(tx, of)
    return tensor_call(tx, "call_method", "unsqueeze", [made, Constant(1)]), made


def _counts(
    tx: Tracer, tensor: TensorValue, count: torch.SymInt, counter: fx.Node | None = None
) -> TensorValue | None:
    """The counts that `bincount` gives: of no number beyond those that it is to count at least."""
    counter = counter or tensor.node
    args, kwargs = counter.args, counter.kwargs
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    if not isinstance(least, int) or not 0 < least <= MOST_TURNS:
        return None
    said = "a loop over counts, as if no number were beyond `minlength`"
    if not _is_in_general(tx, count, least, said):
        return None
    return tensor_call(tx, "call_method", "view", [tensor, Constant(least)])


def _is_in_general(tx: Tracer, count: torch.SymInt, known: int, said: str) -> bool:
    if not tx.answers_in_general():
        return False
    return require_number(tx, symbol_value(tx, count == known), said)


_ROWS = {"nonzero": _positions, "argwhere": _positions, "bincount": _counts}
MOST_TURNS = 256
"""A loop of more iterations is no part of a graph."""


def checked(tx: Tracer, symbol: str, number: Value, says: str) -> bool:
    """Whether a number compares so with zero, which the graph checks where data decides it."""
    if symbol == "!=" and is_by_data(number):
        if is_certain(tx, number, lambda low, high: low > 0 or high < 0):
            return True
    condition = symbol_operator(tx, symbol, number, _ZERO)
    if condition is None:
        return bool(isinstance(number, Constant) and _COMPARED[symbol](number.value, 0))
    if is_by_data(condition):
        return require_number(tx, condition, says)
    return condition.truth(tx)


_COMPARED = {"!=": operator.ne, ">=": operator.ge, ">": operator.gt}


def number_tensor(tx: Tracer, value: Value) -> Value:
    """A number as a tensor of no dimension, of int64 or float64."""
    assert isinstance(value, Constant)
    if not isinstance(value, SymbolValue):
        dtype = torch.int64 if value.cls is int else torch.float64
        named = {"dtype": Constant(dtype)}
        return graph_call(tx, "call_function", torch.scalar_tensor, [value], named)
    return TensorValue(tx.graph.outermost.number_as_tensor(value.graph_argument()))


def _float(tx: Tracer, value: Value) -> Value:
    """A number as an operand of float64; one that does not depend on data stays as it is."""
    if not is_by_data(value):
        return value
    made = number_tensor(tx, value)
    return made if value.cls is float else tensor_call(tx, "call_method", "double", [made])


def read_number(tx: Tracer, tensor: Value) -> Value:
    return graph_call(tx, "call_method", "item", [tensor], {})


def read_again(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A number that is read twice of a tensor, or of one place of it, is one number: `sizes[0]` of
    two lines is one size."""
    tensor = args[0] if args else None
    if not isinstance(tensor, TensorValue) or not tx.data_sizes() or len(args) > 1 or kwargs:
        return None
    node, base = tensor.node, _base(tensor)
    if base is None or not _is_as_made(tx, tensor):
        return None
    same = [node] if base is node else [user for user in base.users if _is_same(user, node)]
    reads = (user for one in same for user in one.users if user.target == "item")
    known = next((user for user in reads if compat.own_data_symbols(user.meta["val"])), None)
    return None if known is None else symbol_value(tx, known.meta["val"], known)


def read_position(tx: Tracer, tensor: TensorValue) -> Value:
    """The number of a tensor of one integer, which is to be a place in a tensor: of a sum, the sum
    of the numbers, so that `x[i : i + 1]` is of one element. Beyond int64 there is no place."""
    node, symbol = tensor.node, _SUMS.get(operator_name(tensor.node.target))
    if symbol is None or node.kwargs or len(node.args) != 2 or not _is_as_made(tx, tensor):
        return read_number(tx, tensor)
    parts = [TensorValue(x) if isinstance(x, fx.Node) else Constant(x) for x in node.args]
    tensors = [part for part in (tensor, *parts) if isinstance(part, TensorValue)]
    whole = all(part.fake.dtype is torch.int64 and part.fake.numel() == 1 for part in tensors)
    if not whole or not all(_is_as_made(tx, part) for part in tensors):
        return read_number(tx, tensor)
    read = [read_position(tx, x) if isinstance(x, TensorValue) else x for x in parts]
    return symbol_operator(tx, symbol, *read) or read_number(tx, tensor)


_SUMS = {"add": "+", "sub": "-"}


def _base(tensor: TensorValue) -> fx.Node | None:
    """What a tensor is an item of; its own node where it is none."""
    node = tensor.node
    found = node.args[0] if node.target is operator.getitem else node
    return found if isinstance(found, fx.Node) else None


def _is_as_made(tx: Tracer, tensor: TensorValue) -> bool:
    """Whether a tensor of the graph has not been written to."""
    graph, fake, base = tx.graph, tensor.fake, _base(tensor)
    if base is None or graph is not graph.outermost or fake.is_inference():
        return False
    given = base.op in ("placeholder", "get_attr")  # may share memory with what is written to
    return version_of(fake) == 0 and not (given and graph.effects.writes())


def _is_same(one: fx.Node, other: fx.Node) -> bool:
    return (one.target, one.args, one.kwargs) == (other.target, other.args, other.kwargs)
