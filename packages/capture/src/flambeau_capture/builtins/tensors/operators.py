"""Operators with a tensor operand.

In: the function of an operator and two values. Out: `tensor_operator`, the node, or what a subclass
or the other side makes of it. Invariant: a comparison is said to be certain only where no draw can
make it otherwise.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.operations.operator_tables import (
    IN_PLACE,
    OPERATORS,
    declined,
    refuse,
)
from flambeau_capture.identity import known_in
from flambeau_capture.values.base import Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.stand_ins import stand_in
from flambeau_capture.values.tensors.existing_tensors import SubclassTensor
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue


def indexed(tx: Tracer, tensor: Value, key: Value) -> Value | None:
    """A tensor at places that tensors and whole numbers say; None for other keys."""
    parts = key.parts() if isinstance(key, TupleValue) else [key]
    places = [part for part in parts if isinstance(part, TensorValue)]
    numbers = [part for part in parts if isinstance(part, Constant) and type(part.value) is int]
    if not isinstance(tensor, TensorValue) or not places or len(places + numbers) < len(parts):
        return None
    found: Value = tensor
    for dim in reversed(range(len(parts))):
        if parts[dim] in numbers:
            arguments = [found, Constant(dim), parts[dim]]
            found = graph_call(tx, "call_function", torch.select, arguments, {})
    arguments = [found, TupleValue(list(places))]
    return graph_call(tx, "call_function", compat.index_operator(), arguments, {})


def has_torch_function(tx: Tracer, value: ObjectValue) -> bool:
    """Whether torch finds `__torch_function__` in an object, by `getattr`."""
    for name in ("__getattribute__", "__getattr__"):
        if value.special(tx, name):
            raise Break("FB0012", f"{value.describe()}, which is asked for __torch_function__")
    return find_in_class(value.cls, "__torch_function__") is not None


def refuses_tensors(value: Value) -> bool:
    """Whether an operator of a tensor leaves it to an object: to all but numbers."""
    if not isinstance(value, ObjectValue) or find_in_class(value.cls, "__torch_function__"):
        return False
    payload = value.payload
    number = isinstance(payload, Constant) and isinstance(payload.value, int | float | complex)
    return not number and not isinstance(payload, TensorValue)


def tensor_operator(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value:
    """`asked`: as what it stands in the program."""
    fn = OPERATORS[symbol][0]
    other = right if isinstance(left, TensorValue) else left
    own = _own_operator(tx, symbol, left, right)
    if own is not None:
        return own
    if (
        fn in (operator.eq, operator.ne)
        and isinstance(other, Constant)
        and (other.is_none or issubclass(other.cls, str))
    ):
        return Constant(fn is operator.ne)
    by_object = symbol != "getitem" and isinstance(other, ObjectValue)
    if isinstance(other, ObjectValue):
        has_torch_function(tx, other)
    if by_object and (other is left or refuses_tensors(other)):
        assert isinstance(other, ObjectValue)
        answer = _by_object(tx, symbol, other, left, right)
        if answer is not None:
            return answer
        asked_it = other.special(tx, _method(symbol, other is left))
        if refuses_tensors(other) and (asked_it or other.payload is None):  # else it has own words
            if fn in (operator.eq, operator.ne):
                return Constant(fn is operator.ne)
            refuse(tx, asked, left, right)
    try:
        found = graph_call(tx, "call_function", fn, [left, right], {})
    except UserError as error:
        acts = known_in(other.cls, _AS_OTHERS)
        named = (acts and symbol != "*") or (isinstance(other, ObjectValue) and fn in _ORDER)
        if named and issubclass(error.value.cls, TypeError):
            sides = (left, right)
            given = [s.cls() if acts and s is other else stand_in(s.cls) for s in sides]
            evaluate(tx, (IN_PLACE if asked in IN_PLACE else OPERATORS)[asked][0], *given)
        if asked not in IN_PLACE:
            raise
        found = graph_call(tx, "call_function", IN_PLACE[asked][0], [left, right], {})  # its words
    if isinstance(left, TensorValue) and type(right) is Constant and fn in _ORDER:
        if isinstance(found, TensorValue) and all(
            type(n) is int and n == 1 for n in found.fake.shape
        ):
            found.truth_known = _certain(fn, left, right.value)
    return found


#: sequences that a graph is given as a list or a tuple
_AS_OTHERS = (collections.deque, torch.Size)


def _method(symbol: str, on_the_left: bool) -> str:
    _, name, reflected = OPERATORS[symbol]
    return name if on_the_left else reflected


def _by_object(
    tx: Tracer, symbol: str, receiver: ObjectValue, left: Value, right: Value
) -> Value | None:
    """What the program's own method answers; None where it leaves it to the other side."""
    name = _method(symbol, receiver is left)
    if not receiver.special(tx, name):
        return None
    argument = right if receiver is left else left
    answer = call_special(tx, receiver, name, [argument])
    return None if declined(answer) else answer


_ORDER = (operator.lt, operator.le, operator.gt, operator.ge)


def _certain(fn: Callable[..., Any], left: TensorValue, bound: Any) -> bool | None:
    """What a comparison of a number from [0, 1) comes to, where it is always the same."""
    if left.node.target is not torch.rand or type(bound) not in (int, float):
        return None
    if bound <= 0 and fn in (operator.lt, operator.ge):
        return fn is operator.ge
    if bound < 0 and fn in (operator.le, operator.gt):
        return fn is operator.gt
    if bound >= 1:
        return fn in (operator.lt, operator.le)
    return None


def _own_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    row = OPERATORS[symbol]
    for receiver, name, argument in ((left, row[1], right), (right, row[2], left)):
        if isinstance(receiver, SubclassTensor) and name and receiver.defines(name):
            found = call_special(tx, receiver, name, [argument])
            if not declined(found):
                return found
    return None
