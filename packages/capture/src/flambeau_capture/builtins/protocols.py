"""Runtime-checkable protocols under `isinstance`.

In: a value and a class. Out: whether the value has every member of the protocol, or None where the
class is no such protocol. Invariant: what the answer rests on is guarded by the attributes read.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import is_none
from flambeau_capture.values.objects.attributes import find_in_class


def is_protocol(kind: type) -> bool:
    """Whether a class is a protocol itself, not one that fulfils it."""
    found = find_in_class(kind, "_is_protocol")  # its metaclass is not asked
    return found is not None and bool(found[1]) and kind is not typing.Protocol


def has_members(
    tx: Tracer, value: Value, kind: type, has_attr: Callable[[Tracer, Value, str], bool]
) -> bool | None:
    """Whether a value is an instance of a protocol by its members."""
    if not is_protocol(kind):
        return None
    if not getattr(kind, "_is_runtime_protocol", False):
        tx.raise_error(
            TypeError,
            "Instance and class checks can only be used with @runtime_checkable protocols",
        )
    if kind in value.cls.__mro__:
        return None
    return all(_has(tx, value, kind, name, has_attr) for name in sorted(_members(kind)))


def _has(
    tx: Tracer,
    value: Value,
    kind: type,
    name: str,
    has_attr: Callable[[Tracer, Value, str], bool],
) -> bool:
    if not has_attr(tx, value, name):
        return False
    if not callable(getattr(kind, name, None)) or find_in_class(value.cls, name) is None:
        return True
    return not is_none(tx.get_attr(value, name))  # a method set to None is one that is refused


def _members(kind: Any) -> set[str]:
    """The names that a protocol asks for."""
    known = getattr(kind, "__protocol_attrs__", None)  # since Python 3.12
    if known is None:
        known = typing._get_protocol_attrs(kind)  # type: ignore[attr-defined]
    return set(known)
