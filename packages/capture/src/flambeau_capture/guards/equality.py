"""Equality of constants in guards.

In: two objects. Out: a bool. Invariant: the classes are the same all the way down, so that 1 is not
True and 1.0 is not 1; 0.0 is not -0.0, and NaN is NaN. The native twin is csrc/same.c.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


def keys_of(table: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict in its order, whatever an `__iter__` of its own says."""
    base = OrderedDict if isinstance(table, OrderedDict) else dict
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
            same(a, b) for a, b in zip(tuple.__iter__(left), tuple.__iter__(right), strict=True)
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
