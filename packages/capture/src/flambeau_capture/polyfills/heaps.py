"""Polyfills of `heapq` and of `bisect`'s insertions.

In, out: what the functions of the same name take and give. Invariant: items are compared with `<`
alone, in an order that leaves the list as the original leaves it (Knuth, The Art of Computer
Programming 5.2.3: the hole goes to a leaf first, then the item rises).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau_capture.polyfills.calling import bisect_left, bisect_right


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


def insort_right(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> None:
    place = bisect_right(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(place, x)


def insort_left(a: Any, x: Any, lo: int = 0, hi: Any = None, *, key: Any = None) -> None:
    place = bisect_left(a, x if key is None else key(x), lo, hi, key=key)
    a.insert(place, x)
