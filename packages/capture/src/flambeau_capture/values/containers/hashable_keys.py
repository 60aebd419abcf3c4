"""Hashable keys that stand for values in dicts and sets.

In: a value. Out: `key_of`, something hashable. Invariant: keys compare as Python's do: constants by
equality, objects by the methods that their class has in Python, everything else by identity; a key
whose equality runs other code is a graph break.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, NoReturn

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.values.base import NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, constant_of, evaluate, is_none, refuse
from flambeau_capture.values.containers.sequences import TupleValue, tx_equal
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import find_in_class, full_name
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue

KeyOf = Callable[[Tracer, Value], Hashable]


@dataclass(frozen=True, slots=True)
class Identity:
    """A key that is equal only to itself."""

    value: Value


class ByMethods:
    """A key whose class says, in Python, what its hash is and what it equals."""

    __slots__ = ("number", "tx", "value")

    def __init__(self, tx: Tracer, value: Value, number: int) -> None:
        self.tx = tx
        self.value = value
        self.number = hash(number)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByMethods):
            raise Break("FB0009", f"comparison of {self.value.describe()} as a key")
        return other.value is self.value or tx_equal(self.tx, self.value, other.value)


def dict_key(tx: Tracer, value: Value) -> Hashable:
    """What stands for a value as a key of a dict."""
    return _placed_key(tx, value, "a dict key")


def set_element(tx: Tracer, value: Value) -> Hashable:
    """What stands for a value as an element of a set."""
    return _placed_key(tx, value, "a set element")


def _placed_key(tx: Tracer, value: Value, place: str) -> Hashable:
    """From 3.14 on a value that cannot be hashed is refused with what it was to be."""
    try:
        return key_of(tx, value)
    except UserError as error:
        if VERSION < (3, 14) or error.value.cls is not TypeError:
            raise
        said = tx.call(tx.wrap_new(str), [error.value], {}).as_python()
    tx.raise_error(TypeError, f"cannot use '{full_name(value.cls)}' as {place} ({said})")


def key_of(tx: Tracer, value: Value) -> Hashable:
    """What stands for a value as a key, where it is hashed and not looked for."""
    if isinstance(value, Constant):
        return _hashable(tx, value.value)
    if isinstance(value, TupleValue):
        return tuple(key_of(tx, part) for part in value.parts())
    as_key = getattr(value, "as_key", value.as_python)
    found = find_in_class(value.cls, "__hash__")
    assert found is not None  # an object's at least
    try:
        key = _hashable(tx, as_key())
    except NotConcrete:
        pass
    else:
        if found[0] is object and not isinstance(key, type):  # a class is guarded itself
            tx.guard_key(value)
        return key
    hasher: Any = found[1]
    if hasher is None:
        refuse(tx, hash, value, __hash__=None)
    if found[0] is not object and find_in_class(value.cls, "__torch_function__") is None:
        if not value.special(tx, "__hash__"):
            raise Break("FB0009", f"hash of {value.describe()}")
        return ByMethods(tx, value, constant_of(ask(tx, value, "__hash__")))
    if found[0] is object:  # tensors that a graph is given differ in any case
        tx.guard_key(value)
    return Identity(value)


_PLAIN = (int, float, bool, str, bytes, type(None))
_MOST = 32  # keys that a number is compared with, one after the other


def is_among(tx: Tracer, value: Value, keys: Collection[Hashable], of: KeyOf = dict_key) -> bool:
    """Whether a value is one of the keys; an open number is compared with each, and stays open."""
    plain = len(keys) <= _MOST and all(type(key) in _PLAIN for key in keys)
    if plain and isinstance(value, SymbolValue):
        numbers = [key for key in keys if isinstance(key, int | float)]
        equal = (tx.binary("==", value, Constant(number * 1)) for number in numbers)
        if not any(one.truth(tx) for one in equal):
            return False
    return of(tx, value) in keys


def _hashable(tx: Tracer, key: Any) -> Hashable:
    evaluate(tx, hash, key)
    found: Hashable = key
    return found


def raise_key_error(tx: Tracer, key: Value) -> NoReturn:
    """As a dict raises it: the key is the error's argument."""
    raise UserError(tx.new_exception(KeyError, [key]))


def raise_ordered_key_error(tx: Tracer, key: Value) -> NoReturn:
    """As methods of OrderedDict raise it: None is no argument, a tuple is all its arguments."""
    given = key.parts() if isinstance(key, TupleValue) else [] if is_none(key) else [key]
    raise UserError(tx.new_exception(KeyError, given))
