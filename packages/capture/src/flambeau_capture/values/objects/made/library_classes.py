"""Classes that metaclasses of the library make of a statement in the frame.

In: a metaclass, a name, bases, a namespace of values. Out: `MadeClass`: enumerations, named tuples.
Invariant: the library's code runs at capture, on models, and again in generated code, so what it
would call of the program is a graph break.
"""

from __future__ import annotations

import enum
import operator
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Tracer, Value
from flambeau_capture.values.constant import LITERALS, Constant, evaluate
from flambeau_capture.values.containers.dicts import DictValue, named_dict
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.made.class_parts import MadePart, model_of
from flambeau_capture.values.objects.made.made_classes import (
    MadeClass,
    PartOfClass,
    base_of,
    in_class,
)
from flambeau_capture.values.registry import trusted_class

_NamedTuple, _TypedDict = types.resolve_bases((typing.NamedTuple, typing.TypedDict))
BY_LIBRARY = (enum.EnumMeta, type(_NamedTuple), type(_TypedDict))
#: what these metaclasses call while they make a class
_CALLED = frozenset({
    "__new__", "__init__", "__init_subclass__", "__set_name__", "_generate_next_value_",
    "_add_alias_", "_add_value_alias_",
})  # fmt: skip


class LibraryBody(DictValue):
    """The namespace of such a statement's body. The library has a number for `enum.auto()` at
    once, which is not known here."""

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        found = super().lookup(tx, key)
        if found is not None and found.cls is enum.auto:
            raise Break("FB0020", "the body of an enumeration reads what enum.auto() is to be")
        return found


class MadeEnumeration(MadeClass):
    """An enumeration that the frame has made. Its flags come to be as they are computed, and it
    keeps them."""

    def __init__(self, tx: Tracer, model: Any, make: Any, given: Sequence[Value]) -> None:
        super().__init__(tx, model, make, given)
        self._at_first = frozenset(model._value2member_map_)
        for name, member in model._member_map_.items():
            tx.heap.part(member, PartOfClass(self, member, operator.getitem, name))

    def track_member(self, tx: Tracer, member: Any) -> None:
        """A member is used, perhaps one that was computed."""
        if tx.heap.own_of(member) is None:
            tx.heap.part(member, PartOfClass(self, member, operator.call, member._value_))

    def rebuild(self, writer: Any) -> None:
        super().rebuild(writer)
        kind: Any = self.python_class
        for value in kind._value2member_map_:
            if value not in self._at_first:
                writer.do_with_top(operator.call, [Constant(value)])


def make_by_library(
    tx: Tracer, meta: ClassValue, name: Value, bases: Args, namespace: DictValue
) -> MadeClass:
    """`meta(name, bases, namespace)`."""
    entries = {str(key.as_python()): value for key, value in namespace.entries()}
    entries.pop("__classdictcell__", None)  # what annotations look into, as the class is being made
    kinds = tuple(map(base_of, bases))
    owners = (vars(one) for kind in kinds for one in kind.__mro__ if not trusted_class(one))
    called = next((key for part in (entries, *owners) for key in part if key in _CALLED), None)
    if called is not None:
        raise Break("FB0020", f"{meta.describe()} calls {called}")
    model_space = {key: _model(tx, meta, value, key) for key, value in entries.items()}
    given = [meta, name, TupleValue(list(bases)), named_dict(entries)]
    model = evaluate(tx, _make, meta.python_class, name.as_python(), kinds, model_space)
    by_kind = MadeEnumeration if issubclass(model, enum.Enum) else MadeClass
    made = by_kind(tx, model, _make, given)
    before = set(map(id, model_space.values()))
    for key, part in vars(model).items():
        if id(part) not in before and type(part) not in LITERALS and type(part) is not model:
            tx.heap.part(part, PartOfClass(made, part, in_class, key))
    return made


def _model(tx: Tracer, meta: ClassValue, value: Value, name: str) -> Any:
    if meta.python_class is not enum.EnumMeta or name.startswith("__"):
        return model_of(tx, value, name)
    if value.cls is enum.auto:
        return enum.auto()
    items: Sequence[Value] = value.parts() if type(value) is TupleValue else [value]
    if not isinstance(value, FunctionValue | MadePart):
        if not all(isinstance(item, Constant) for item in items):
            raise Break("FB0020", f"{name!r} of an enumeration is {value.describe()}")
        return value.as_python()
    return model_of(tx, value, name)


def _make(meta: Any, name: str, bases: tuple[type, ...], entries: Mapping[str, Any]) -> type:
    space = meta.__prepare__(name, bases)
    for key, value in entries.items():
        space[key] = value
    made: type = meta(name, bases, space)
    return made
