"""Identity: `a is b`, and `==` where it falls back to it.

In: two values. Out: `identical`, and which values compare by identity. Invariant: that two objects
are not the same one is guarded.
"""

from __future__ import annotations

from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.functions.partials import PartialValue
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.opaque import OpaqueValue


def compares_by_identity(value: Value) -> bool:
    """Whether `==` on a value that capture does not look into asks whether it is the object."""
    if not isinstance(value, OpaqueValue):
        return True
    found = find_in_class(type(value.real), "__eq__")
    return found is not None and found[0] is object


def by_identity(tx: Tracer, value: Value) -> bool:
    """Whether a value is equal to itself alone, as its class says nothing else."""
    if isinstance(value, ClassValue) and value.special(tx, "__eq__"):
        return False
    return isinstance(value, ClassValue | PartialValue | BuiltinValue | FunctionValue)


def same_method(tx: Tracer, left: Value, right: Value) -> bool:
    if isinstance(left, MethodValue) and isinstance(right, MethodValue):
        return identical(tx, left.receiver, right.receiver) and identical(
            tx, left.function, right.function
        )
    if isinstance(left, BoundMethod) and isinstance(right, BoundMethod):
        return left.name == right.name and identical(tx, left.receiver, right.receiver)
    return False


def identical(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right`."""
    if left is right:
        return True
    if isinstance(left, Constant) and isinstance(right, Constant):
        one, other = left.value, right.value
        return one is other or (type(one) is type(other) and one == other)
    if isinstance(left, ClassValue) and isinstance(right, ClassValue):
        return left.python_class is right.python_class
    if isinstance(left, BuiltinValue) and isinstance(right, BuiltinValue):
        return left.fn is right.fn
    if isinstance(left, OpaqueValue) and isinstance(right, OpaqueValue):
        return left.real is right.real
    for value in (left, right):
        _ = value.cls  # the answer rests on what they are
    if not isinstance(left, Constant) and not isinstance(right, Constant):
        tx.guard_distinct(left, right)
    return False
