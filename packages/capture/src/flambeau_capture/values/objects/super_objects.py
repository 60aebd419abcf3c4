"""Objects of `super()`, and what is found through them.

In: a class and a receiver. Out: `SuperValue`, `SlotOfBase`. Invariant: what `super()` finds is
bound to the receiver as Python binds it, the methods of built-in classes too.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.identity import known_in
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.objects.attributes import class_attribute
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.instances import ObjectValue


class SuperValue(Value):
    described = "super of {0.owner}"
    cls: type = super

    def __init__(self, owner: ClassValue, receiver: Value) -> None:
        self.owner = owner
        self.receiver = receiver

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return super_attribute(tx, self.owner, self.receiver, name)

    def reconstruct(self, writer: Any) -> None:
        writer.call(super, [self.owner, self.receiver])


def super_of(tx: Tracer, owner: ClassValue, receiver: Value) -> SuperValue:
    """`super(owner, receiver)`."""
    own = receiver.python_class if isinstance(receiver, ClassValue) else type
    if not any(known_in(owner.python_class, kind.__mro__) for kind in (own, receiver.cls)):
        words = "super(type, obj): obj must be an instance or subtype of type"
        tx.raise_error(TypeError, words)
    return SuperValue(owner, receiver)


def super_attribute(tx: Tracer, owner: Value, receiver: Value, name: str) -> Value:
    """`super(owner, receiver).name`."""
    assert isinstance(owner, ClassValue)
    own = receiver.python_class if isinstance(receiver, ClassValue) else None
    as_class = own is not None and owner.python_class in own.__mro__
    start = own if own is not None and as_class else receiver.cls
    if name == "__class__":
        return tx.wrap_new(super)
    found = class_attribute(tx, receiver, start, name, after=owner.python_class)
    if isinstance(found, BoundMethod):
        return SlotOfBase(owner, receiver, name)
    if as_class:
        # a function found on a class through a class is not bound, a classmethod is to the class
        bound = isinstance(found, MethodValue) and found.receiver is receiver
        after = _after(start, owner.python_class)
        raw = next((vars(kind)[name] for kind in after if name in vars(kind)), None)
        if bound and not isinstance(raw, classmethod):
            return found.function  # type: ignore[attr-defined,no-any-return]
    return found


def _after(kind: type, owner: type) -> tuple[type, ...]:
    """The classes that `super()` of a class looks into."""
    return kind.__mro__[kind.__mro__.index(owner) + 1 :]


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
            kind: Any = args[0]
            after = _after(kind.python_class, self.owner.python_class)
            found = next(one.__new__ for one in after if "__new__" in vars(one))
            return tx.call(tx.wrap_new(found), args, kwargs)
        if isinstance(receiver, ClassValue) and self.name == "__call__":
            return tx.instantiate(receiver, args, kwargs, plain=True)
        if isinstance(receiver, ObjectValue) and receiver.payload is None:
            if self.name == "__init_subclass__":
                return Constant(None)
        return super().call(tx, args, kwargs)
