"""Entries of functools caches, read where they stand and made of what a graph has computed.

In: a cached function, and arguments of a call. Out: what it keeps for them; the same call again.
Invariant: to read an entry changes nothing: no hit is counted, and it does not become the newest.
A function whose table cannot be found has no entries here.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_capture._native import cached_answer, call_cached, disabled

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

    def has_room(self, fn: Any, number: int) -> bool:
        """Whether so many more entries take the place of none."""
        known = fn.cache_info()
        return not self._bounded or bool(known.currsize + number <= known.maxsize)

    def __call__(self, base: Any) -> Any:
        return self._answer(self._table[self.key(base)])

    def _answer(self, found: Any) -> Any:
        return cached_answer(found) if self._bounded else found

    def entries(self) -> dict[Any, Any]:
        """All answers that the cache has, by their keys."""
        return {key: self._answer(found) for key, found in [*self._table.items()]}

    def call_of(self, key: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call that has a key."""
        if type(key) is not tuple:
            return (key,), {}
        place = next((i for i, part in enumerate(key) if part is self._mark), None)
        if place is None:
            return key[: len(key) // 2] if self._typed else key, {}
        rest = key[place + 1 :]
        named = (len(rest) - place) // 3 if self._typed else len(rest) // 2
        return key[:place], {rest[2 * i]: rest[2 * i + 1] for i in range(named)}


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
        args, kwargs = _arguments(values, self.names)
        self.fn(*args, **kwargs)


class CallAgain(Hit):
    """A call that the graph has computed too, whatever its sizes are, and what it calls itself:
    its answers are what the graphs that compute them give."""

    def __init__(
        self, fn: Any, names: tuple[str, ...], entry: CacheEntry, inner: Sequence[Any]
    ) -> None:
        super().__init__(fn, names, entry)
        self.all = (fn, *inner)

    def __call__(self, *values: Any) -> None:
        before = [each.cache_info().misses for each in self.all]
        super().__call__(*values)
        for each, misses in zip(self.all, before):
            if each in _CHECKED and _CHECKED[each].misses == misses:
                _CHECKED[each].misses = each.cache_info().misses


@dataclass
class _Checked:
    """How often a cached function had computed when its answers were last looked at, and those."""

    misses: int
    entries: dict[Any, Any]


_CHECKED: weakref.WeakKeyDictionary[Any, _Checked] = weakref.WeakKeyDictionary()


def are_current(entry: CacheEntry, fn: Any) -> bool:
    """Whether all that a cached function keeps is what it would compute now."""
    known = _CHECKED.setdefault(fn, _Checked(-1, {}))
    misses = fn.cache_info().misses
    if known.misses == misses:
        return True
    entries = entry.entries()
    for key, answer in entries.items():
        if known.entries.get(key, known) is not answer:
            args, kwargs = entry.call_of(key)
            try:
                again = disabled(fn.__wrapped__)(*args, **kwargs)
            except Exception:  # whatever the program raises now, it did not then
                return False
            if not are_alike(again, answer):
                return False
    known.misses, known.entries = misses, entries
    return True


def are_alike(one: Any, other: Any) -> bool:
    """Whether nothing but identity distinguishes two objects that a function has made; False where
    that is not known."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, int | float | complex | str | bytes):
        return repr(one) == repr(other)
    if isinstance(one, torch.Tensor):
        return (
            one.stride() == other.stride()
            and one.requires_grad == other.requires_grad
            and one.dtype == other.dtype
            and one.device == other.device
            and torch.equal(one, other)
        )
    if isinstance(one, dict):
        return are_alike([*one.items()], [*other.items()])
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_alike, one, other))
    return False


class AnswerOfGraph:
    """A call that is answered with what the graph computed, or raises, as it did there; the answer
    is the first of its arguments."""

    def __init__(self, fn: Any, names: tuple[str, ...], raises: bool) -> None:
        self.fn, self.names, self.raises = fn, names, raises

    def __call__(self, answer: Any, *values: Any) -> None:
        args, kwargs = _arguments(values, self.names)
        if not self.raises:
            call_cached(self.fn, answer, False, args, kwargs)
            return
        try:
            call_cached(self.fn, _Raised(), True, args, kwargs)
        except _Raised:
            pass


class _Raised(Exception):
    """What a call raises in place of the program's own exception."""


def _arguments(
    values: tuple[Any, ...], names: tuple[str, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    plain = len(values) - len(names)
    return values[:plain], dict(zip(names, values[plain:]))
