"""Answers of special methods to the functions that call for them.

In: a value whose class has `__len__`, `__index__`, `__str__`, ... in Python. Out: what `len`,
`operator.index`, `str`, ... return. Invariant: an answer of another class is refused in the words
of Python, which is given an object of a class of the same name.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from typing import Any

from flambeau_capture.values.base import Args, NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, constant_of, evaluate
from flambeau_capture.values.objects.attributes import call_special
from flambeau_capture.values.stand_ins import stand_in

ASKING: dict[str, tuple[type, Callable[..., Any]]] = {
    "__bool__": (bool, bool),
    "__len__": (int, len),
    "__index__": (int, operator.index),
    "__int__": (int, int),
    "__float__": (float, float),
    "__complex__": (complex, complex),
    "__hash__": (int, hash),
    "__str__": (str, str),
    "__repr__": (str, repr),
    "__format__": (str, format),
    "__bytes__": (bytes, bytes),
    "__fspath__": (str, os.fspath),
}
"""The class of an answer, and the function that calls for it."""

_LIMITED = frozenset({"__len__", "__hash__"})  # not every integer will do


def ask(tx: Tracer, receiver: Value, name: str, args: Args = (), by: Any = None) -> Value:
    """The answer of a special method to the function `by`, as Python takes it."""
    kind, asking = ASKING[name]
    found = call_special(tx, receiver, name, list(args))
    exact = found.cls is kind and (by is None or by is asking)
    known = type(found) is Constant  # not a number that is left open
    if exact and not (known and name in _LIMITED):
        return found
    answered = _concrete(tx, found, kind, name)
    methods = {name: lambda self, *given: answered}
    given = [constant_of(arg) for arg in args]
    return tx.wrap_new(evaluate(tx, by or asking, stand_in(receiver.cls, methods), *given))


def ask_length_hint(tx: Tracer, value: Value) -> None:
    """Call `__len__`, else `__length_hint__`, as code does that makes room for items."""
    for name in ("__len__", "__length_hint__"):
        if not value.special(tx, name):
            continue
        try:
            if name == "__len__":
                value.length(tx)
                return
            found = call_special(tx, value, name, [])
        except UserError as error:
            if not issubclass(error.value.cls, TypeError):
                raise
            continue
        answered = _concrete(tx, found, int, name)
        evaluate(tx, operator.length_hint, stand_in(value.cls, {name: lambda self, n=answered: n}))


def _concrete(tx: Tracer, found: Value, kind: type, name: str) -> Any:
    """The answer as an object; of one that is not known, an object of a class of the same name."""
    if name == "__len__" and not isinstance(found, Constant) and hasattr(found.cls, "__index__"):
        return tx.index_of(found)
    payload = getattr(found, "payload", None)
    if isinstance(payload, Constant) and issubclass(found.cls, kind):
        plain: Any = type(payload.value)
        return plain.__new__(found.cls, payload.value)
    try:
        return found.as_python()
    except NotConcrete:
        if issubclass(found.cls, kind):
            return constant_of(found)
        return stand_in(found.cls)
