"""Polyfills of itertools, heapq and `functools.reduce`.

In, out: what the functions of the same name take and give. Invariant: same items and comparisons
in the same order, and no argument iterated further than the original iterates it. What the original
does with an argument when it is called, and not when an item is taken, its type says: an iterable
comes as an iterator, a tuple is made of what is given, a number is by `__index__`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flambeau_capture.polyfills.calling import bisect_left, bisect_right

_MISSING = object()


def islice(iterable: Iterable[Any], *bounds: int | None) -> Iterator[Any]:
    where = slice(*bounds)
    start = 0 if where.start is None else where.start
    step = 1 if where.step is None else where.step
    stop = where.stop
    position = 0
    wanted = start
    iterator = iter(iterable)
    while stop is None or wanted < stop:
        for item in iterator:
            position += 1
            if position > wanted:
                yield item
                break
        else:
            return
        wanted += step
    if stop is not None:
        while position < stop:
            for _ in iterator:
                position += 1
                break
            else:
                return


def product(*iterables: tuple[Any, ...], repeat: int = 1) -> Iterator[Any]:
    results: list[tuple[Any, ...]] = [()]
    for pool in iterables * repeat:
        results = [(*result, item) for result in results for item in pool]
    yield from results


def accumulate(
    iterable: Iterable[Any], func: Callable[[Any, Any], Any] | None = None, *, initial: Any = None
) -> Iterator[Any]:
    combine = operator.add if func is None else func
    iterator = iter(iterable)
    total = initial
    if initial is None:
        for item in iterator:
            total = item
            break
        else:
            return
    yield total
    for item in iterator:
        total = combine(total, item)
        yield total


def starmap(function: Callable[..., Any], iterable: Iterable[Any]) -> Iterator[Any]:
    for args in iterable:
        yield function(*args)


def takewhile(predicate: Callable[[Any], Any], iterable: Iterable[Any]) -> Iterator[Any]:
    for item in iterable:
        if not predicate(item):
            return
        yield item


def dropwhile(predicate: Callable[[Any], Any], iterable: Iterable[Any]) -> Iterator[Any]:
    dropping = True
    for item in iterable:
        if dropping and predicate(item):
            continue
        dropping = False
        yield item


def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[Any]:
    iterators = [iter(iterable) for iterable in iterables]
    live = len(iterators)
    done = [False] * live
    while live:
        items = []
        for index, iterator in enumerate(iterators):
            if done[index]:
                items.append(fillvalue)
                continue
            for item in iterator:
                items.append(item)
                break
            else:
                done[index] = True
                live -= 1
                if not live:
                    return
                items.append(fillvalue)
        yield tuple(items)


def pairwise(iterable: Iterable[Any]) -> Iterator[Any]:
    previous = _MISSING
    for item in iterable:
        if previous is not _MISSING:
            yield previous, item
        previous = item


def combinations(iterable: tuple[Any, ...], r: int) -> Iterator[Any]:
    pool = iterable
    if r > len(pool):
        return
    picked = list(range(r))
    yield tuple([pool[index] for index in picked])
    while True:
        place = r - 1
        while place >= 0 and picked[place] == place + len(pool) - r:
            place -= 1
        if place < 0:
            return
        picked[place] += 1
        for later in range(place + 1, r):
            picked[later] = picked[later - 1] + 1
        yield tuple([pool[index] for index in picked])


def permutations(iterable: tuple[Any, ...], r: int | None = None) -> Iterator[Any]:
    pool = iterable
    size = len(pool) if r is None else r
    results: list[tuple[int, ...]] = [()]
    for _ in range(size):
        results = [
            (*result, index)
            for result in results
            for index in range(len(pool))
            if index not in result
        ]
    for result in results:
        yield tuple([pool[index] for index in result])


def compress(data: Iterable[Any], selectors: Iterable[Any]) -> Iterator[Any]:
    for item, keep in zip(data, selectors):
        if keep:
            yield item


def reduce(function: Callable[[Any, Any], Any], sequence: Any, initial: Any = _MISSING) -> Any:
    try:
        iterator = iter(sequence)
    except TypeError:
        raise TypeError("reduce() arg 2 must support iteration") from None
    result = initial
    if initial is _MISSING:
        for item in iterator:
            result = item
            break
        else:
            raise TypeError("reduce() of empty iterable with no initial value")
    for item in iterator:
        result = function(result, item)
    return result


def filterfalse(predicate: Callable[[Any], Any] | None, iterable: Iterable[Any]) -> Iterator[Any]:
    for item in iterable:
        if not (item if predicate is None else predicate(item)):
            yield item


def combinations_with_replacement(iterable: tuple[Any, ...], r: int) -> Iterator[Any]:
    pool = iterable
    picked: list[tuple[int, ...]] = [()]
    for _ in range(r):
        picked = [
            (*chosen, index)
            for chosen in picked
            for index in range(chosen[-1] if chosen else 0, len(pool))
        ]
    for chosen in picked:
        yield tuple([pool[index] for index in chosen])


def cycle(iterable: Iterable[Any]) -> Iterator[Any]:
    seen = []
    for item in iterable:
        seen.append(item)
        yield item
    while seen:
        yield from seen


def tee(iterable: Iterable[Any], n: int = 2) -> tuple[Iterator[Any], ...]:
    iterator = iter(iterable)
    waiting: list[list[Any]] = [[] for _ in range(n)]

    def branch(mine: list[Any]) -> Iterator[Any]:
        while True:
            if not mine:
                for item in iterator:
                    for other in waiting:
                        other.append(item)
                    break
                else:
                    return
            yield mine.pop(0)

    return tuple([branch(mine) for mine in waiting])


def contains(iterator: Iterator[Any], item: Any) -> bool:
    """`item in iterator`, which is left after the first that equals it."""
    return any(one is item or one == item for one in iterator)


def _searched(a: Any) -> Iterator[Any]:
    try:
        return iter(a)
    except TypeError:
        raise TypeError(f"argument of type '{type(a).__name__}' is not iterable") from None


def count_of(a: Any, b: Any) -> int:
    count = 0
    for item in _searched(a):
        if item is b or item == b:
            count += 1
    return count


def index_of(a: Any, b: Any) -> int:
    for place, item in enumerate(_searched(a)):
        if item is b or item == b:
            return place
    raise ValueError("sequence.index(x): x not in sequence")


def group_tensors(tensorlistlist: Any, with_indices: bool = False) -> dict[Any, Any]:
    """Tensors of several lists, place by place, by device and dtype of the first list's."""
    groups: dict[Any, Any] = {}
    for index, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensorlistlist], [])
        lists, indices = groups[key]
        for found, tensors in zip(lists, tensorlistlist):
            if tensors:
                found.append(tensors[index])
        if with_indices:
            indices.append(index)
    return groups


def _rise(heap: list[Any], top: int, place: int) -> None:
    """Let the item at a place rise towards `top` past parents that are greater."""
    item = heap[place]
    while place > top:
        parent = (place - 1) // 2
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _sink(heap: list[Any], place: int) -> None:
    """Let the item at a place sink to a leaf along smaller children, and rise from there."""
    top, size = place, len(heap)
    item = heap[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and not heap[child] < heap[child + 1]:
            child += 1
        heap[place] = heap[child]
        place = child
    heap[place] = item
    _rise(heap, top, place)


def heapify(heap: list[Any]) -> None:
    for place in reversed(range(len(heap) // 2)):
        _sink(heap, place)


def heappush(heap: list[Any], item: Any) -> None:
    heap.append(item)
    _rise(heap, 0, len(heap) - 1)


def heappop(heap: list[Any]) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first, heap[0] = heap[0], last
    _sink(heap, 0)
    return first


def heapreplace(heap: list[Any], item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sink(heap, 0)
    return first


def heappushpop(heap: list[Any], item: Any) -> Any:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _sink(heap, 0)
    return item


class _Reversed:
    """An item of a heap whose greatest comes first."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.item < self.item)


def _greatest_first(heap: list[Any], change: Callable[..., Any], *items: Any) -> Any:
    wrapped = [_Reversed(item) for item in heap]
    answer = change(wrapped, *[_Reversed(item) for item in items])
    heap[:] = [one.item for one in wrapped]
    return answer


def heapify_max(heap: list[Any]) -> None:
    _greatest_first(heap, heapify)


def heappop_max(heap: list[Any]) -> Any:
    return _greatest_first(heap, heappop).item


def heapreplace_max(heap: list[Any], item: Any) -> Any:
    return _greatest_first(heap, heapreplace, item).item


def insort_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    place = bisect_right(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(place, x)


def insort_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    place = bisect_left(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(place, x)
