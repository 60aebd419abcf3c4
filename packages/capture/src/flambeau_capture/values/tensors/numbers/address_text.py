"""Text that has an object's address in it, which only Python knows.

In: objects that existed before the frame or are made in it, and that their class gives no text of
their own; functions. Out: `OpenText` with the address left open.
Invariant: reading the address in such a text ends the graph; where it leaves, it is the text of the
object that the program has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Local
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.objects.attributes import assume_entry, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_models import nothing_around
from flambeau_capture.values.objects.made.made_objects import MadeObject
from flambeau_capture.values.registry import wrap_known
from flambeau_capture.values.tensors.numbers.open_text import OpenText


class Address(Constant):
    """The address of an object, as text."""

    known = "0x"

    def __init__(self, of: Value) -> None:
        super().__init__("", None, self._fix)
        self.of = of

    @property
    def cls(self) -> type:
        return str

    def _fix(self) -> None:
        raise Break("FB0009", f"the address in the text of {self.of.describe()}")

    def holds(self) -> Iterable[Value]:
        return [self.of]

    def reconstruct(self, writer: Any) -> None:
        writer.call(_address_of, [self.of])


def _address_of(obj: Any) -> str:
    return hex(id(obj))


def _around_address(made: Any) -> list[str]:
    """What a class in C says of an object before and after its address."""
    pieces = repr(made).split(hex(id(made)))
    return [] if any("0x" in piece for piece in pieces) else pieces


def is_shown_by_address(tx: Tracer, value: Value, *more: str) -> bool:
    """Whether a text of a value says what it is and where, and no code of the program makes it.
    more: other methods that make the text, which are to be `object`'s too."""
    if value.source is not None and isinstance(value.source.root(), Local):
        return False  # one that the frame alone may hold may end before its text is put together
    if type(value) is FunctionValue:
        return True
    if isinstance(value, MadeObject):
        told = find_in_class(value.cls, "__str__")
        plain = told is not None and told[0] is object and value.model.around is nothing_around
        return plain and len(_around_address(value.object)) == 2
    if type(value) is not ObjectValue or value.payload is not None:
        return False
    names = ("__str__", "__repr__", *more)
    if any(value.special(tx, name) for name in names):
        return False
    found = [find_in_class(value.cls, name) for name in names]
    return all(at is not None and at[0] is object for at in found)


def address_text(tx: Tracer, value: Value) -> Value:
    """str() or repr() of such a value."""
    if isinstance(value, FunctionValue):
        begin, end = f"<function {constant_of(tx.get_attr(value, '__qualname__'))} at ", ">"
    elif isinstance(value, MadeObject):
        begin, end = _around_address(value.object)
    else:
        assume_entry(tx, value.cls, "__module__")
        module = getattr(value.cls, "__module__", None)
        named = isinstance(module, str) and module != "builtins"
        kind = wrap_known(tx, value.cls, value.cls.__name__)
        name = constant_of(tx.get_attr(kind, "__qualname__" if named else "__name__"))
        begin, end = f"<{f'{module}.' if named else ''}{name} object at ", ">"
    return OpenText(tx, [(part, "") for part in (Constant(begin), Address(value), Constant(end))])
