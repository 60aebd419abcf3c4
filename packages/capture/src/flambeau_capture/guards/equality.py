"""Equality of constants and keys as guards mean it, and references to objects.

In: two values; an object. Out: whether they are the same to a program (1, True and 1.0 are not); a
`Reference` that keeps the object alive only where it cannot be referred to weakly. Invariant: no
code of the program runs.
"""

from __future__ import annotations

import math
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


def keys_of(table: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict in its order, whatever an `__iter__` of its own says."""
    base = OrderedDict if issubclass(type(table), OrderedDict) else dict
    return tuple(base.__iter__(table))


#: the number or text that an instance of a subclass is, whatever methods of its own say
PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}


def same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if type(left) is float:
        return _same_float(left, right)
    if type(left) is complex:
        return _same_float(left.real, right.real) and _same_float(left.imag, right.imag)
    if isinstance(left, tuple):
        return tuple.__len__(left) == tuple.__len__(right) and all(
            a is b or same(a, b)
            for a, b in zip(tuple.__iter__(left), tuple.__iter__(right), strict=True)
        )
    if type(left) is frozenset:
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if type(left) in (slice, range):
        return same((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    return bool(left == right)


def _same_float(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)


#: made anew by every access: nobody else holds them
_MADE_BY_ACCESS = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


def _is_kept(obj: Any) -> bool:
    """Tensors are, until the entry ends: torch swaps no tensor that is referred to weakly, and the
    graph has those that guards know by identity."""
    if issubclass(type(obj), _MADE_BY_ACCESS) or not type(obj).__weakrefoffset__:
        return True
    return any(kind.__module__ == "torch._C" for kind in type(obj).__mro__)


class Reference:
    """Called, it answers the object, or None where it is gone. `weak` is None if it is kept."""

    __slots__ = ("_kept", "_place", "weak")

    def __init__(self, obj: Any) -> None:
        self._place = id(obj)
        self._kept = None
        self.weak: weakref.ref[Any] | None = None
        if _is_kept(obj):
            self._kept = obj
        else:
            self.weak = weakref.ref(obj)

    def __call__(self) -> Any:
        return self._kept if self.weak is None else self.weak()

    def forget(self) -> None:
        """Be of nothing from here on: its guard is never evaluated again."""
        self._kept = None

    def __eq__(self, other: object) -> bool:
        known = self()
        if known is None or not isinstance(other, Reference):
            return False
        return other._place == self._place and known is other()

    def __hash__(self) -> int:
        return self._place
