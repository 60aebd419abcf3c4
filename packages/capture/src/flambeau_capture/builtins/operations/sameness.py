"""Identity of values: `is`, and `==` where it comes to the same.

In: two values, or one. Out: `identical`; whether `==` of a class compares identity; whether two
methods are one. Invariant: that two objects are not the same one is guarded.
"""

from __future__ import annotations

from flambeau_capture.source import Attr
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, one_object
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue, PartialValue
from flambeau_capture.values.functions.call_rules import is_bound
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.made.made_objects import MadeObject
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.readings import Reading


def compares_by_identity(value: Value) -> bool:
    """Whether `==` on an opaque value compares identity."""
    return not isinstance(value, OpaqueValue | MadeObject) or equals_as_object(value)


def equals_as_object(value: Value) -> bool:
    """Whether `==` of its class is object's."""
    found = find_in_class(value.cls, "__eq__")
    return found is not None and found[0] is object


def by_identity(tx: Tracer, value: Value) -> bool:
    """Whether a value is equal to itself alone, as its class says nothing else."""
    if isinstance(value, ClassValue) and value.special(tx, "__eq__"):
        return False
    return isinstance(value, ClassValue | PartialValue | BuiltinValue | FunctionValue)


METHODS = (MethodValue, BoundMethod)
MAYBE_METHODS = (*METHODS, BuiltinValue)


def same_method(tx: Tracer, left: Value, right: Value) -> bool:
    left, right = _as_bound(tx, left), _as_bound(tx, right)
    if isinstance(left, MethodValue) and isinstance(right, MethodValue):
        return identical(tx, left.receiver, right.receiver) and identical(
            tx, left.function, right.function
        )
    if isinstance(left, BoundMethod) and isinstance(right, BoundMethod):
        return left.name == right.name and identical(tx, left.receiver, right.receiver)
    return False


def _as_bound(tx: Tracer, value: Value) -> Value:
    """A method in C that the program has kept as it is where it was looked up."""
    if not isinstance(value, BuiltinValue) or value.source is None or not is_bound(value.fn):
        return value
    receiver = tx.wrap(value.fn.__self__, Attr(value.source, "__self__"))
    return BoundMethod(receiver, value.fn.__name__)


def identical(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if isinstance(left, Constant) and isinstance(right, Constant):
        return one_object(tx, left, right)
    if isinstance(left, ClassValue) and isinstance(right, ClassValue):
        return left.python_class is right.python_class
    if isinstance(left, BuiltinValue) and isinstance(right, BuiltinValue):
        return left.fn is right.fn
    if isinstance(left, OpaqueValue) and isinstance(right, OpaqueValue):
        if left.real is right.real:
            assert left.source is not None and right.source is not None
            tx.guard_alias(left.source, right.source)
            return True
    of_one_class = left.cls is right.cls  # the answer rests on what they are
    for side in (left, right):
        if isinstance(side, Reading) and of_one_class:
            side.unknown("identity")
    if isinstance(left, TupleValue) and isinstance(right, TupleValue):
        if left.cls is tuple and right.cls is tuple and not left.parts() and not right.parts():
            return True  # there is one empty tuple
    if not isinstance(left, Constant) and not isinstance(right, Constant):
        tx.guard_distinct(left, right)
    return False
