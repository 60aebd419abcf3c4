"""Lookahead on iterators, without advancing them.

In: an iterator of a built-in kind. Out: an iterator of its own at the same position. Invariant: the
program's iterator is left as it is; a kind that cannot promise that is refused.
"""

from __future__ import annotations

import collections
import collections.abc
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

_SET: set[Any] = set()
VIEWS = {
    (kind, name): getattr(kind(), name)()
    for kind in (dict, collections.OrderedDict)
    for name in ("keys", "values", "items")
}
_VIEWS = [*VIEWS.values()]
# Their `__reduce__` gives what they run over and where they are, and that is all they are.
_OVER_ITEMS: tuple[type, ...] = (
    type(iter([])), type(reversed([])), type(iter(())), type(iter(range(0))),
    type(iter(range(1 << 70))), type(iter("")), type(iter("\u20ac")), type(iter(b"")),
    type(iter(_SET)),
    *(type(iter(view)) for view in _VIEWS), *(type(reversed(view)) for view in _VIEWS),
)  # fmt: skip
_KINDS = frozenset(_OVER_ITEMS)
_OVER_DICTS = frozenset(_OVER_ITEMS[-2 * len(_VIEWS) :])
_OVER_SETS = type(iter(_SET))
# Their `__reduce__` gives all that they are made with, and warns from 3.12 on.
_ENDLESS = (itertools.count, itertools.repeat) if sys.version_info < (3, 12) else ()
_CHAIN = itertools.chain if sys.version_info < (3, 12) else None
_CHAINED = frozenset({list, tuple, range, dict, collections.OrderedDict, *map(type, _VIEWS)})


def _holders(parts: tuple[Any, ...], place: int) -> int:
    """How many references an iterator has that is in what `__reduce__` gives."""
    return sys.getrefcount(parts[place])


_AROUND: tuple[Any, ...] = enumerate(iter([])), zip(iter([]))
_ALONE = {type(each): _holders(each.__reduce__()[1], 0) for each in _AROUND}
_IN_CHAIN, _IN_TUPLE = _ALONE[enumerate], _holders((object(),), 0)
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
    if kind is _CHAIN:
        return itertools.chain(
            *(twin(x) if hasattr(x, "__next__") else x for x in _links(iterator))
        )
    raise NotKnowable(kind.__name__)


def _links(chain: Any) -> list[Any]:
    """What a chain has left: iterators that nobody else can advance, and built-in containers."""
    _, _, *state = chain.__reduce__()
    if not state:
        return []
    parts = state[0]
    made = parts[0].__reduce__()
    over = made[1][0] if type(parts[0]) in (type(iter(())), type(iter([]))) else None
    if over is None or _holders(parts, 0) > _IN_CHAIN:
        raise NotKnowable("a chain of what may run code, or be advanced by others")
    links = [*parts[1:]]
    also = any(parts[1] is each for each in over) if links else False
    own = not links or _holders(parts, 1) <= _IN_CHAIN + len(links) + also
    for place in range(made[2] if made[2:] else 0, len(over)):
        if type(over[place]) not in _CHAINED:
            own = own and _holders(over, place) <= _IN_TUPLE
            also = True
        links.append(over[place])
    if not own or (also and (type(over) is not tuple or _holders(made[1], 0) > _IN_CHAIN + 1)):
        raise NotKnowable("a chain of iterators that others hold too")
    return links


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
    if kind is _CHAIN:
        links = _links(iterator)
        links += [parts[0] for parts in iterator.__reduce__()[2:]]
        return [one for each in links for one in _over(each)]
    return [iterator.__reduce__()[1][0]]


def _over(link: Any) -> list[Any]:
    """The containers that an iterator, a container or a view gives items of."""
    if isinstance(link, collections.abc.MappingView):
        return [*gc.get_referents(link)]
    return underlying(link) if hasattr(link, "__next__") else [link]


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
