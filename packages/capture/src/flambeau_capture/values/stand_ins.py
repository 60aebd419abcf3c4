"""Objects that stand in for others where CPython refuses them.

In: a class. Out: `stand_in`, an object of a class of the same name that can do nothing;
`refuses`, what CPython raises of such an object. Invariant: the words are CPython's own; nothing of
the program is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def name_in_errors(kind: type) -> str:
    """A class as CPython's errors name it: one that is written in C mostly with its module."""
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


def refuses(
    fn: Callable[..., Any], kind: type, names: Iterable[str], *given: Any
) -> TypeError | None:
    """What a function raises of an object whose class has none of the methods that it calls; None
    where it has one."""
    if any(name in vars(owner) for owner in kind.__mro__ for name in names):
        return None
    try:
        fn(stand_in(kind), *given)
    except TypeError as error:
        return error
    return None
