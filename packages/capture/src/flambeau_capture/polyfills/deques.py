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
    for item in ours:
        other = next(theirs, _END)
        if other is _END:
            return by(1, 0)
        equal = item is other or item == other
        if not equal:
            return bool(by(item, other))
    return by(0, 0 if next(theirs, _END) is _END else 1)


_END = object()


def copied(given: deque[Any]) -> Any:
    """`deque.copy`."""
    kind = type(given)
    return kind(given) if given.maxlen is None else kind(given, given.maxlen)


def joined(left: deque[Any], right: Any) -> Any:
    """`deque.__add__`."""
    if not isinstance(right, deque):
        name = type(right).__name__
        raise TypeError(f'can only concatenate deque (not "{name}") to deque')
    made = copied(left)
    deque.extend(made, right)
    return made


def repeated(given: deque[Any], times: Any) -> Any:
    """`deque.__mul__`."""
    made = copied(given)
    made *= times
    return made


def text(given: deque[Any]) -> str:
    """`deque.__repr__`."""
    name, items = type(given).__name__, list(given)
    return (
        f"{name}({items!r})"
        if given.maxlen is None
        else f"{name}({items!r}, maxlen={given.maxlen})"
    )
