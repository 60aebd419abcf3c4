"""Probe objects that draw CPython's own error messages.

In: values, and the function that asks something of them. Out: `refuse`, which raises in the program
what CPython raises; `stand_in`, an object to ask in a value's place; `name_in_errors`. Invariant:
the words of an exception are CPython's own, of an object whose type has the same name and the same
few methods: no message is written here, but for its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate


def name_in_errors(kind: type) -> str:
    """A class as CPython's errors name it: one that is written in C mostly with its module. They
    are asked: a class that is none of integers says by its whole name that it is not."""
    stranger = list if any(base is int for base in kind.__mro__) else int
    try:
        stranger.__new__(kind)
    except TypeError as error:
        around = f"{stranger.__name__}.__new__(): is not a subtype of {stranger.__name__}"
        words = str(error)
        start = len(stranger.__name__) + len(".__new__(")
        return words[start : start + (len(words) - len(around) - 1) // 2]
    raise AssertionError(f"{kind} is made by {stranger}")


def stand_in(kind: type, methods: dict[str, Any] | None = None) -> Any:
    """An object of a class of the same name, which can do nothing but what `methods` say."""
    if kind is type:  # which no class statement makes: it lacks what those have by being made so
        return type("Class", (), {})
    body = {"__qualname__": kind.__qualname__, **(methods or {})}
    return type(name_in_errors(kind), (), body)()


def nameless(value: Value) -> Any:
    """A constant itself, or what stands in for another value."""
    return value.value if isinstance(value, Constant) else stand_in(value.cls)


def refuse(tx: Tracer, fn: Callable[..., Any], *values: Value, **methods: Any) -> Any:
    """Raise what `fn` raises of objects that know nothing of it; the first has `methods` (None: set
    to None, which Python takes for a refusal)."""
    first = stand_in(values[0].cls, methods) if methods else nameless(values[0])
    return evaluate(tx, fn, first, *(nameless(value) for value in values[1:]))
