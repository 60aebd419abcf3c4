"""Dispatch of arithmetic operators to the methods of two operands, as CPython orders them.

In: an operator and two operands, one of them an instance of a class of the program. Out: its value,
or what it raises. Invariant: the operator runs on objects whose classes derive from the same
built-in classes and from each other as the operands' do, and whose methods are the operands' own.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.operations.operator_tables import (
    COMPARISONS,
    IN_PLACE,
    OPERATORS,
    declined,
    refuse,
)
from flambeau_capture.identity import known_in
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import SequenceValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.numpy.arrays import NumpyScalar
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import call_special, find_in_class, layout_of
from flambeau_capture.values.objects.container_subclasses import built_in_part
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.stand_ins import name_in_errors
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue

_HOLDS = (list, tuple, collections.deque)  # what is in them does not matter to an operator
_TEXTS = (str, bytes)
_TABLES = (dict, set, frozenset)  # which act without their items: those are to be compared


@dataclass(frozen=True)
class _Answer:
    """What a method of the program answers."""

    value: Value


@dataclass
class _Operands:
    """Objects that act for operands."""

    tx: Tracer
    names: tuple[str, str]
    kinds: list[tuple[type, type]] = field(default_factory=list)  # a metaclass may hash and compare
    made: list[tuple[Any, Value]] = field(default_factory=list)
    raised: BaseException | None = None

    def act_for(self, value: Value) -> Any:
        """The object that acts for an operand; a constant and a container act for themselves."""
        for name in (*self.names, "__index__"):
            value.special(self.tx, name)  # which the answer rests on
        part = value.payload if isinstance(value, ObjectValue) else value
        own = part is not value and isinstance(part, DictValue | SetValue)  # which acts empty
        given = [] if part is None or own else [_built_in_value(part)]
        actor = self._kind(value.cls)(*given) if isinstance(value, ObjectValue) else given[0]
        self.made.append((actor, value))
        return actor

    def value_of(self, result: Any) -> Value:
        """The value of what the operator gave."""
        if isinstance(result, _Answer):
            return result.value
        for actor, value in self.made:
            if actor is result:
                return value
        if any(type(result) is made for _, made in self.kinds):
            raise Break("FB0009", f"an operator that makes one more {type(result).__name__}")
        if type(result) not in _HOLDS:
            return self.tx.wrap_new(result)
        parts = [built_in_part(value) for _, value in self.made]
        like = next(p for p in parts if isinstance(p, SequenceValue) and p.cls is type(result))
        return like.like(list(result))

    def _kind(self, cls: type) -> type:
        """A class that derives from the same built-in class, and has the operator's methods."""
        for kind, made in self.kinds:
            if kind is cls:
                return made
        above, base = next((known for known in self.kinds if _derives(cls, known[0])),
                           (None, layout_of(cls)))  # fmt: skip
        body: dict[str, Any] = {}
        for name in (*self.names, "__index__"):
            found = find_in_class(cls, name)
            of_program = found is None or not _derives(layout_of(cls), found[0])
            if (
                found is not None
                and of_program
                and (above is None or not _has(above, name, found[1]))
            ):
                body[name] = None if found[1] is None else self._method(name)
        made = type(name_in_errors(cls), (base,), body)
        self.kinds.append((cls, made))
        return made

    def _method(self, name: str) -> Callable[..., Any]:
        def method(actor: Any, *given: Any) -> Any:
            receiver, *args = (self.value_of(each) for each in (actor, *given))
            try:
                if name == "__index__":
                    return constant_of(ask(self.tx, receiver, name))
                answer = call_special(self.tx, receiver, name, args)
            except BaseException as error:
                self.raised = error
                raise
            return NotImplemented if declined(answer) else _Answer(answer)

        return method


def _has(cls: type, name: str, attribute: object) -> bool:
    found = find_in_class(cls, name)
    return found is not None and found[1] is attribute


def _derives(cls: type, kind: type) -> bool:
    return any(each is kind for each in cls.__mro__)


def _built_in_value(part: Value) -> Any:
    if isinstance(part, Constant):
        return part.value
    kind: Any = part.cls
    return kind(part.parts()) if isinstance(part, SequenceValue) else kind()


def _can_act(value: Value, names: tuple[str, str]) -> bool:
    part, kind = built_in_part(value), layout_of(value.cls)
    if isinstance(part, DictValue | SetValue):
        return known_in(kind, _TABLES) or not any(hasattr(kind, name) for name in names)
    if isinstance(part, ObjectValue):
        return kind is object
    if isinstance(part, Constant):
        return not isinstance(part, SymbolValue)
    return isinstance(part, SequenceValue) and known_in(part.cls, _HOLDS)


def arithmetic(tx: Tracer, symbol: str, left: Value, right: Value, asked: str) -> Value | None:
    """The value of an arithmetic operator; None: an operand is of another kind.

    Raises: in the program, what CPython raises of such operands; `Break` where the operator makes
    another instance by calling its class."""
    if symbol in COMPARISONS or symbol not in OPERATORS or symbol == "getitem":
        return None
    if not any(isinstance(value, ObjectValue) for value in (left, right)):
        return None
    fn, *methods = OPERATORS[symbol]
    names = (methods[0], methods[1])
    formats = (
        symbol == "%" and isinstance(part := built_in_part(left), Constant) and part.cls in _TEXTS
    )
    if formats or not (_can_act(left, names) and _can_act(right, names)):
        return None
    parts = (built_in_part(left), built_in_part(right))
    by_numpy = any(isinstance(part, NumpyScalar) for part in parts) and symbol != "*"
    if by_numpy and any(isinstance(part, SequenceValue) for part in parts):
        if left.special(tx, names[0]):
            return None
        return tx.binary(symbol, *parts)  # an array, unless a method on the left comes before
    operands = _Operands(tx, names)
    one = operands.act_for(left)
    other = one if right is left else operands.act_for(right)
    try:
        result = fn(one, other)
    except Exception as error:
        if error is operands.raised:
            raise
        if isinstance(error, TypeError) and asked in IN_PLACE:
            refuse(tx, asked, left, right)
        tx.raise_as_python(error)
    if type(result) in _TABLES:
        return tx.binary(symbol, built_in_part(left), built_in_part(right))
    return operands.value_of(result)
