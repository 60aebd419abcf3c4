"""`super()` objects as values.

In: a class and a receiver. Out: `SuperValue`, `super_attribute`. Invariant: what is found is bound
to the receiver itself, not to the super object.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.objects.attributes import class_attribute
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.instances import ObjectValue


class SuperValue(Value):
    cls: type = super

    def __init__(self, owner: ClassValue, receiver: Value) -> None:
        self.owner = owner
        self.receiver = receiver

    def describe(self) -> str:
        return f"super of {self.owner.describe()}"

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return super_attribute(tx, self.owner, self.receiver, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        self.unknown(f"assignment to attribute {name!r}")

    def reconstruct(self, writer: Any) -> None:
        writer.call(super, [self.owner, self.receiver])


def super_attribute(tx: Tracer, owner: Value, receiver: Value, name: str) -> Value:
    """`super(owner, receiver).name`."""
    assert isinstance(owner, ClassValue)
    as_class = isinstance(receiver, ClassValue) and owner.python_class in receiver.mro()
    start = receiver.python_class if as_class else receiver.cls  # type: ignore[attr-defined]
    if name == "__class__":
        return tx.wrap_new(super)
    found = class_attribute(tx, receiver, start, name, after=owner.python_class)
    if isinstance(found, BoundMethod):
        return SlotOfBase(owner, receiver, name)
    if as_class:
        # a function found on a class through a class is not bound, a classmethod is to the class
        bound = isinstance(found, MethodValue) and found.receiver is receiver
        if bound and not isinstance(_raw(start, owner.python_class, name), classmethod):
            return found.function  # type: ignore[attr-defined,no-any-return]
    return found


def _raw(start: type, owner: type, name: str) -> Any:
    """What the classes after `owner` hold under a name, unbound."""
    after = start.__mro__[start.__mro__.index(owner) + 1 :]
    return next((vars(kind)[name] for kind in after if name in vars(kind)), None)


def super_slot(kind: Value, owner: type) -> Any:
    """The built-in `__new__` after a class in the order of a class."""
    mro = kind.python_class.__mro__  # type: ignore[attr-defined]
    after = mro[mro.index(owner) + 1 :]
    return next(one.__new__ for one in after if "__new__" in vars(one))


class SlotOfBase(BoundMethod):
    """A built-in class's own method, reached past the overriding ones of the receiver's class."""

    def __init__(self, owner: ClassValue, receiver: Value, name: str) -> None:
        super().__init__(receiver, name)
        self.owner = owner

    def reconstruct(self, writer: Any) -> None:
        writer.call(super, [self.owner, self.receiver])
        writer.load_attr(self.name)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        receiver = self.receiver
        if self.name == "__new__":
            if len(args) > 1:
                found = super_slot(args[0], self.owner.python_class)
                return tx.call(tx.wrap_new(found), args, kwargs)
            return tx.new_object(args[0])
        if isinstance(receiver, ClassValue) and self.name == "__call__":
            return tx.instantiate(receiver, args, kwargs, plain=True)
        if isinstance(receiver, ObjectValue):
            if self.name == "__init_subclass__" and receiver.payload is None:
                return Constant(None)
            return receiver.call_method(tx, self.name, args, kwargs)
        return receiver.call_method(tx, self.name, args, kwargs)
