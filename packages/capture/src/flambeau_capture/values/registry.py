"""Registry of wrappers: which kind of value stands for an object.

In: an object and its source. Out: `wrap_object`, which asks a table by exact type, then predicates
in order of registration, most special first. Invariant: the guards that a kind relies on are added
by the function that makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flambeau_capture.breaks import Break
from flambeau_capture.identity import compares_itself
from flambeau_capture.source import Source
from flambeau_capture.values.base import Tracer, Value

Wrapper = Callable[[Tracer, Any, Source], Value]
W = TypeVar("W", bound=Wrapper)

_BY_TYPE: dict[type, Wrapper] = {}
_BY_TEST: list[tuple[int, Callable[[Any], bool], Wrapper]] = []


def wraps_type(*types: type) -> Callable[[W], W]:
    """Register a wrapper for exact types."""

    def register(wrapper: W) -> W:
        for one in types:
            _BY_TYPE[one] = wrapper
        return wrapper

    return register


def wraps_if(test: Callable[[Any], bool], priority: int) -> Callable[[W], W]:
    """Register a wrapper for what a test accepts; lower priorities are asked first."""

    def register(wrapper: W) -> W:
        _BY_TEST.append((priority, test, wrapper))
        _BY_TEST.sort(key=lambda row: row[0])
        return wrapper

    return register


def wrap_object(tx: Tracer, obj: Any, source: Source) -> Value:
    """The value of an existing object; the same object is always the same value."""
    kind = type(obj)
    wrapper = None if compares_itself(kind) else _BY_TYPE.get(kind)
    if wrapper is None:
        try:
            wrapper = next(wrapper for _, test, wrapper in _BY_TEST if test(obj))
        except Exception as error:  # code of its class, which `isinstance` runs
            what = f"{type(obj).__name__} object that cannot be asked for its class"
            raise Break("FB0009", f"{what} ({type(error).__name__}: {error})") from error
    return wrapper(tx, obj, source)
