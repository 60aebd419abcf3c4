"""Polyfills of deques: methods in C that go by the iterator of a subclass.

In, out: what the methods of the same name take and give. Invariant: iterators are requested, and
items compared, in the order in which CPython does.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any


def compared(left: deque[Any], right: deque[Any], by: Callable[[Any, Any], Any]) -> Any:
    """`by(left, right)`; it is the first items which differ that decide."""
    if by in (operator.eq, operator.ne):
        if left is right:
            return by is operator.eq
        if deque.__len__(left) != deque.__len__(right):
            return by is operator.ne
    ours, theirs = iter(left), iter(right)
    while True:
        item, other = next(ours, _END), next(theirs, _END)
        if item is _END or other is _END:
            return by(item is not _END, other is not _END)
        if not (item is other or item == other):
            return bool(by(item, other))


_END = object()


def copied(given: deque[Any]) -> Any:
    """`deque.copy`."""
    kind, limit = type(given), deque.maxlen.__get__(given)  # type: ignore[attr-defined]
    made = kind(given) if limit is None else kind(given, limit)
    if not isinstance(made, deque):
        raise TypeError(f"{kind.__name__}() must return a deque, not {type(made).__name__}")
    return made


def joined(left: deque[Any], right: Any) -> Any:
    """`deque.__add__`."""
    if not isinstance(right, deque):
        return deque.__add__(deque(), right)  # which says so
    made = copied(left)
    deque.extend(made, right)
    return made


def repeated(given: deque[Any], times: Any) -> Any:
    """`deque.__mul__`."""
    times = operator.index(times)
    return deque.__imul__(copied(given), times)


def text(given: deque[Any]) -> str:
    """`deque.__repr__`."""
    items, limit = list(given), deque.maxlen.__get__(given)  # type: ignore[attr-defined]
    ends = ")" if limit is None else f", maxlen={limit})"
    return f"{type(given).__name__}({items!r}{ends}"
