"""Mapping keyed by object identity.

In: any objects, hashable or not. Out: what was stored for the same object. Invariant: a key is kept
alive, so its id stays its own. (Code objects hash by their constants, which may be unhashable.)
"""

from __future__ import annotations

from collections.abc import Container
from typing import Generic, TypeVar


def compares_itself(kind: type) -> bool:
    """Whether to hash or to compare a class runs code of its metaclass. Such a class is the
    program's: it is in no table of capture's, and must not be looked up in one."""
    meta = type(kind)
    if meta is type:
        return False
    return meta.__hash__ is not type.__hash__ or meta.__eq__ is not type.__eq__


def known_in(kind: type, kinds: Container[type]) -> bool:
    """Whether a class is one of capture's."""
    return not compares_itself(kind) and kind in kinds


def is_heap_type(kind: type) -> bool:
    """Whether a class is made as class statements make theirs (CPython's Py_TPFLAGS_HEAPTYPE)."""
    return bool(kind.__flags__ & 1 << 9)


K = TypeVar("K")
V = TypeVar("V")


class IdentityMap(Generic[K, V]):
    def __init__(self) -> None:
        self._entries: dict[int, tuple[K, V]] = {}

    def get(self, key: K, default: V) -> V:
        return self._entries.get(id(key), (key, default))[1]

    def find(self, key: K) -> V | None:
        return self._entries.get(id(key), (key, None))[1]

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[id(key)] = (key, value)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()
