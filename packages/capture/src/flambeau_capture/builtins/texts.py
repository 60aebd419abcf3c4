"""Text of values: str(), repr(), ascii(), format().

In: values. Out: text, or a value for it where numbers of it stay open, or the address of an object
is a part. Invariant: code of the program that makes text runs where the program has it run; where
text is read that has an address in it, the graph ends.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import partial

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import IteratorValue, Tracer, Value, needing
from flambeau_capture.values.constant import Constant, constant_of, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attribute_dicts import ProxyValue
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.stand_ins import name_in_errors
from flambeau_capture.values.tensors.numbers.address_text import address_text, is_shown_by_address
from flambeau_capture.values.tensors.numbers.open_text import joined_text, open_text
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue


def text_of(tx: Tracer, value: Value, method: str) -> str:
    """str(), repr() or ascii() of a value, as `method` is `__str__`, `__repr__` or `ascii`."""
    if method == "ascii":
        shown = text_of(tx, value, "__repr__")
        return shown.encode("ascii", "backslashreplace").decode()
    if isinstance(value, TensorValue):
        raise Break("FB0003", f"text of {value.describe()}")
    if isinstance(value, ExceptionValue):
        return str(constant_of(value.text(tx, method)))
    if isinstance(value, ObjectValue):
        for name in (method, "__repr__"):
            if value.special(tx, name):
                by = str if method == "__str__" else repr
                return str(constant_of(ask(tx, value, name, by=by)))
            own = find_in_class(value.cls, name)
            if own is not None and own[0] is not object:
                break  # a built-in class's, which calls no other
        if isinstance(value.payload, Constant | TupleValue):
            return text_of(tx, value.payload, method)
        if issubclass(value.cls, types.SimpleNamespace):
            entries = value.own_entries(tx)
            shown = ", ".join(f"{name}={text_of(tx, part, '__repr__')}" for name, part in entries)
            plain = value.cls is types.SimpleNamespace
            return f"{'namespace' if plain else value.cls.__name__}({shown})"
        raise Break("FB0009", f"text of {value.describe()}")
    if isinstance(value, ClassValue):
        if method == "__str__" and value.special(tx, method):
            return str(constant_of(ask(tx, value, method)))
        return value.text(tx)
    if isinstance(value, IteratorValue) or hasattr(value.cls, "__next__"):
        raise Break("FB0009", f"text of {value.describe()}")  # which has an address
    if isinstance(value, MadeObject):
        return value.text(tx, method)
    if isinstance(value, ProxyValue):
        shown = text_of(tx, value.inner, method)
        return shown if method == "__str__" else f"mappingproxy({shown})"
    if value.cls in _BRACKETS:
        return "".join(map(constant_of, _pieces(tx, value, ())))
    with needing("FB0003", lambda error: f"text of {error}"):
        plain = value.as_python()
    return str(evaluate(tx, str if method == "__str__" else repr, plain))


def text_value(tx: Tracer, value: Value, method: str, inside: tuple[Value, ...] = ()) -> Value:
    """The same as a value: numbers stay open that are it, or that a list, a tuple or a dict has."""
    if isinstance(value, SymbolValue):
        return open_text(tx, value, "") or Constant(text_of(tx, value, method))
    if is_shown_by_address(tx, value):
        return address_text(tx, value)
    if value.cls in _BRACKETS:
        pieces = list(_pieces(tx, value, inside))
        return joined_text(tx, pieces) or Constant("".join(map(constant_of, pieces)))
    return Constant(text_of(tx, value, method))


_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


def _pieces(tx: Tracer, value: Value, inside: tuple[Value, ...]) -> Iterator[Value]:
    """The text of a list, a tuple or a dict. inside: the ones that it is a part of."""
    begin, end = _BRACKETS[value.cls]
    if any(value is one for one in inside):
        yield Constant(f"{begin}...{end}")
        return
    shown = partial(text_value, tx, method="__repr__", inside=(*inside, value))
    yield Constant(begin)
    count = 0
    for count, item in enumerate(value.iterate(tx).drain(tx), 1):
        if count > 1:
            yield Constant(", ")
        yield shown(item)
        if value.cls is dict:
            yield Constant(": ")
            yield shown(value.get_item(tx, item))
    yield Constant(f",{end}" if count == 1 and value.cls is tuple else end)


def format_value(tx: Tracer, value: Value, spec: str) -> str:
    """format(value, spec)."""
    if isinstance(value, Constant):
        return str(evaluate(tx, format, value.value, spec))
    if value.special(tx, "__format__"):
        return str(constant_of(ask(tx, value, "__format__", (Constant(spec),))))
    if isinstance(value, MadeObject):
        return str(constant_of(value.call_method(tx, "__format__", [Constant(spec)], {})))
    formats = find_in_class(value.cls, "__format__")
    if isinstance(value, FrozenValue) and formats is not None:
        in_python = isinstance(formats[1], types.FunctionType)
        if not in_python or formats[0].__module__ == "enum":
            return str(evaluate(tx, format, value.as_python(), spec))
    payload = value.payload if isinstance(value, ObjectValue) else None
    if spec and isinstance(payload, Constant):
        return str(evaluate(tx, format, payload.value, spec))
    if spec and formats is not None and formats[0] is object:
        shown = name_in_errors(value.cls)
        tx.raise_error(TypeError, f"unsupported format string passed to {shown}.__format__")
    return format(text_of(tx, value, "__str__"), spec)
