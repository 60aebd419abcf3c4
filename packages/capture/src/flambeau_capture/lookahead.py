"""Lookahead on iterators, without advancing them.

In: an iterator of a built-in kind. Out: an iterator of its own at the same position. Invariant: the
program's iterator is left as it is; a kind that cannot promise that is refused.
"""

from __future__ import annotations

import collections
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

_DICT: dict[Any, Any] = {}
_SET: set[Any] = set()
_VIEWS = _DICT.keys(), _DICT.values(), _DICT.items()
# Their `__reduce__` gives what they run over and where they are, and that is all they are.
_OVER_ITEMS: tuple[type, ...] = (
    type(iter([])), type(reversed([])), type(iter(())), type(iter(range(0))),
    type(iter(range(1 << 70))), type(iter("")), type(iter("\u20ac")), type(iter(b"")),
    type(iter(_SET)),
    *(type(iter(view)) for view in _VIEWS), *(type(reversed(view)) for view in _VIEWS),
    type(iter(collections.OrderedDict())),
)  # fmt: skip
_KINDS = frozenset(_OVER_ITEMS)
_OVER_DICTS = frozenset(_OVER_ITEMS[-7:])
_OVER_SETS = type(iter(_SET))
# Their `__reduce__` gives all that they are made with, and warns from 3.12 on.
_ENDLESS = (itertools.count, itertools.repeat) if sys.version_info < (3, 12) else ()


def _holders(parts: tuple[Any, ...], place: int) -> int:
    """How many references an iterator has that is in what `__reduce__` gives."""
    return sys.getrefcount(parts[place])


_AROUND: tuple[Any, ...] = enumerate(iter([])), zip(iter([]))
_ALONE = {type(each): _holders(each.__reduce__()[1], 0) for each in _AROUND}
ANY_DICT, ANY_SET = object(), object()


class NotKnowable(TypeError):
    """To know the next item of this iterator is to advance it."""


def can_look_ahead(iterator: object) -> bool:
    try:
        twin(iterator)
    except (NotKnowable, RuntimeError):  # which it raises where it goes on, too
        return False
    return True


def twin(iterator: Any) -> Iterator[Any]:
    """An iterator of its own, at the same position."""
    kind = type(iterator)
    if kind in _KINDS:
        made, (over, *_), *state = iterator.__reduce__()
        found: Any = made(over)
        if state and state[0] is not None:
            found.__setstate__(state[0])
        return found  # type: ignore[no-any-return]
    if kind in _ENDLESS:
        made, parts = iterator.__reduce__()
        return made(*parts)  # type: ignore[no-any-return]
    if kind is enumerate:
        _, parts = iterator.__reduce__()
        return enumerate(_own_twin(kind, parts, 0), parts[1])
    if kind is zip:
        _, parts, *state = iterator.__reduce__()
        inner = [_own_twin(kind, parts, place) for place in range(len(parts))]
        return zip(*inner, strict=bool(state and state[0]))
    raise NotKnowable(kind.__name__)


def _own_twin(kind: type, parts: tuple[Any, ...], place: int) -> Iterator[Any]:
    """The twin of an iterator that nobody but the one around it, of a kind, can advance."""
    if _holders(parts, place) > _ALONE[kind]:
        raise NotKnowable("an iterator that others hold too")
    return twin(parts[place])


def underlying(iterator: Any) -> list[Any]:
    """The containers that an iterator runs over; `ANY_DICT` or `ANY_SET` where it is not known
    which."""
    kind = type(iterator)
    if kind in _OVER_DICTS:
        return [ANY_DICT]
    if kind is _OVER_SETS:
        return [ANY_SET]
    if kind in _ENDLESS:
        return []
    if kind is enumerate:
        return underlying(iterator.__reduce__()[1][0])
    if kind is zip:
        return [one for inner in iterator.__reduce__()[1] for one in underlying(inner)]
    return [iterator.__reduce__()[1][0]]


def look_ahead(iterator: Any, index: int) -> Any:
    """The item after `index` others; LookupError where there is none."""
    for item in islice(twin(iterator), index, None):
        return item
    raise LookupError(index)


@functools.cache
def looking_ahead(index: int) -> Callable[[Any], Any]:
    """`look_ahead` of one position, as a function of the iterator alone."""
    return functools.partial(look_ahead, index=index)


def remain(count: int, ended: bool, iterator: Any) -> bool:
    """A guard's question: how many items are left, or that there are more."""
    found = sum(1 for _ in islice(twin(iterator), count + 1))
    return found == count if ended else found > count


def advance(iterator: Iterator[Any], count: int, ended: bool) -> None:
    """What a program did that took `count` items, and reached the end."""
    for _ in islice(iterator, count):
        pass
    if ended:
        next(iterator, None)
