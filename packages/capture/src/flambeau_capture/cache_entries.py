"""Entries of functools caches, read where they stand.

In: a cached function, and arguments of a call. Out: what it keeps for them; the same call again.
Invariant: to read an entry changes nothing: no hit is counted, and it does not become the newest.
A function whose table cannot be found has no entries here.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from flambeau_capture._native import cached_answer, disabled

#: calls that capture has made itself, by what their hash was: once for now, once for all
_AHEAD: weakref.WeakKeyDictionary[Any, Counter[int]] = weakref.WeakKeyDictionary()
_MADE: weakref.WeakKeyDictionary[Any, Counter[int]] = weakref.WeakKeyDictionary()
_MOST = 3  # times that capture makes an entry which does not stay


def _parameters(fn: Any) -> dict[str, Any]:
    asked = getattr(fn, "cache_parameters", dict)
    found: dict[str, Any] = asked()
    return found


class CacheEntry:
    """The entry of a call. given: its arguments, those by keyword last, under `names`; place: which
    of them is to be given to it, as it is another object in another call."""

    __name__ = "cached"

    def __init__(
        self, fn: Any, given: Sequence[Any], names: Sequence[str], place: int | None
    ) -> None:
        parameters = _parameters(fn)
        # the table, the function and the mark before keywords are what it refers to, in this order
        held = gc.get_referents(fn)
        at = max((i for i, obj in enumerate(held) if obj is fn.__wrapped__), default=0)
        if not 0 < at < len(held) - 1 or type(held[at - 1]) is not dict or not parameters:
            raise LookupError(fn)
        self._table, self._mark = held[at - 1], held[at + 1]
        self._typed, self._bounded = parameters["typed"], parameters["maxsize"] is not None
        self._given, self._names, self._place = [*given], tuple(names), place
        if place is not None:
            self._given[place] = None

    def key(self, base: Any) -> Any:
        """The key in the table."""
        values = self._given
        if self._place is not None:
            values = [*values]
            values[self._place] = base
        return self.key_of(values)

    def key_of(self, values: Sequence[Any]) -> Any:
        """The key for all arguments, as functools makes it."""
        plain = len(values) - len(self._names)
        if not self._typed and not self._names:
            alone = len(values) == 1 and type(values[0]) in (int, str)
            return values[0] if alone else tuple(values)
        key = [*values[:plain]]
        if self._names:
            key.append(self._mark)
        for name, value in zip(self._names, values[plain:]):
            key += name, value
        if self._typed:
            key += map(type, values)
        return tuple(key)

    def is_full(self, fn: Any) -> bool:
        """Whether another entry takes the place of one."""
        known = fn.cache_info()
        return self._bounded and bool(known.currsize >= known.maxsize)

    def __call__(self, base: Any) -> Any:
        found = self._table[self.key(base)]
        return cached_answer(found) if self._bounded else found


def is_of_many(fn: Any) -> bool:
    """Whether capture has made so many entries that other calls are likely to be as many."""
    return len(_MADE.get(fn, ())) > _MOST


def call_ahead(fn: Any, key: Any, call: Callable[[], Any]) -> bool:
    """Make a call before the program does; whether it is worth it: entries that do not stay are
    the program's to make."""
    number, made = hash(key), _MADE.setdefault(fn, Counter())
    if made[number] >= _MOST:
        return False
    made[number] += 1
    disabled(call)()
    _AHEAD.setdefault(fn, Counter())[number] += 1
    return True


class Hit:
    """A call for what it does to the cache; the first one after `call_ahead` was that."""

    def __init__(self, fn: Any, names: tuple[str, ...], entry: CacheEntry) -> None:
        self.fn, self.names, self.entry = fn, names, entry

    def __call__(self, *values: Any) -> None:
        ahead = _AHEAD.get(self.fn)
        if ahead:
            number = hash(self.entry.key_of(values))
            if ahead[number]:
                ahead[number] -= 1
                ahead += Counter()  # keeps what is left to be counted
                return
        plain = len(values) - len(self.names)
        self.fn(*values[:plain], **dict(zip(self.names, values[plain:])))
