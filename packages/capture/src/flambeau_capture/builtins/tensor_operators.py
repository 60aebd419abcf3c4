"""Operators with a tensor on one side.

In: the function of an operator and two values. Out: `tensor_operator`, the node, or what a subclass
or the other side makes of it. Invariant: a comparison is said to be certain only where no draw can
make it otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture.builtins.operator_tables import OPERATORS
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.graph_calls import graph_call
from flambeau_capture.values.objects import ObjectValue
from flambeau_capture.values.subclasses import SubclassTensor
from flambeau_capture.values.tensor import TensorValue
from flambeau_capture.values.tuples import TupleValue


def by_tensors(key: Value) -> bool:
    parts = key.parts() if isinstance(key, TupleValue) else [key]
    return all(isinstance(part, TensorValue) for part in parts)


def tensor_operator(tx: Tracer, fn: Callable[..., Any], left: Value, right: Value) -> Value:
    other = right if isinstance(left, TensorValue) else left
    own = _own_operator(tx, fn, left, right)
    if own is not None:
        return own
    if (
        fn in (operator.eq, operator.ne)
        and isinstance(other, Constant)
        and (other.is_none or issubclass(other.cls, str))
    ):
        return Constant(fn is operator.ne)
    if isinstance(other, ObjectValue) and isinstance(right, ObjectValue):
        name = next(row[2] for row in OPERATORS.values() if row[0] is fn)
        if right.special(name):
            return right.call_method(tx, name, [left], {})
    if isinstance(other, ObjectValue) and isinstance(left, ObjectValue):
        name = next(row[1] for row in OPERATORS.values() if row[0] is fn)
        if left.special(name):
            return left.call_method(tx, name, [right], {})
    found = graph_call(tx, "call_function", fn, [left, right], {})
    if isinstance(left, TensorValue) and type(right) is Constant and fn in _ORDER:
        if isinstance(found, TensorValue) and found.fake.numel() == 1:
            found.truth_known = _certain(fn, left, right.value)
    return found


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


def _own_operator(tx: Tracer, fn: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """An operator that a tensor's subclass defines in Python."""
    row = next(row for row in OPERATORS.values() if row[0] is fn)
    for receiver, name, argument in ((left, row[1], right), (right, row[2], left)):
        if isinstance(receiver, SubclassTensor) and name and receiver.defines(name):
            found = tx.call(tx.get_attr(receiver, name), [argument], {})
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found
    return None
