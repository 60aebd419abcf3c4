"""Reachability: what one comes to from a few things, by any relation between them.

In: where to start, and what follows each. Out: all that is reached, one by one. Invariant: each is
reached once, and what follows it is queried after its user is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reached(start: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Those of the start, and all that follow them."""
    seen: set[T] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            yield one
            waiting.extend(following(one))
