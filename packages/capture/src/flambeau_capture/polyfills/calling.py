"""Polyfills of callables that the standard library makes: getters, sort keys, call iterators.

In, out: what the functions of the same name take and give. Invariant: an argument is used as often
and in the order that the original uses it.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

_NOTHING = object()
#: the class of `functools.cmp_to_key`'s keys
KEY: type = type(functools.cmp_to_key(operator.sub))


def call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """operator.call, which Python has since 3.11."""
    return fn(*args, **kwargs)


def match_keys(mapping: Any, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What a mapping pattern takes: the values under its keys, or None where one is not there."""
    seen: set[Any] = set()
    found = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        found.append(mapping.get(key, _NOTHING))
        if found[-1] is _NOTHING:
            return None
    return tuple(found)


def within(fn: Callable[..., Any], kind: Any, given: tuple[Any, ...]) -> Callable[..., Any]:
    """A function decorated with a context manager of torch's."""

    @functools.wraps(fn)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with kind(*given):
            return fn(*args, **kwargs)

    return decorated


def itemgetter(item: Any, *items: Any) -> Callable[[Any], Any]:
    if not items:
        return lambda obj: obj[item]
    return lambda obj: tuple([obj[one] for one in (item, *items)])


def attrgetter(name: str, *names: str) -> Callable[[Any], Any]:
    for one in (name, *names):
        if not isinstance(one, str):
            raise TypeError("attribute name must be a string")
    if not names:
        return lambda obj: _dotted(obj, name)
    return lambda obj: tuple([_dotted(obj, one) for one in (name, *names)])


def _dotted(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = getattr(obj, part)
    return obj


def methodcaller(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    if not isinstance(name, str):
        raise TypeError("method name must be a string")
    return lambda obj: getattr(obj, name)(*args, **kwargs)


class Ordered:
    """A key that compares by a comparison function, whose answer is compared with 0."""

    def __hash__(self) -> int:
        raise TypeError(f"unhashable type: '{KEY.__module__}.{KEY.__name__}'")

    def __init__(self, compare: Callable[[Any, Any], Any], obj: Any) -> None:
        self.compare = compare
        self.obj = obj

    def __call__(self, obj: Any) -> Ordered:
        return Ordered(self.compare, obj)

    def __lt__(self, other: Any) -> Any:
        return _order(self, other) < 0

    def __gt__(self, other: Any) -> Any:
        return _order(self, other) > 0

    def __le__(self, other: Any) -> Any:
        return _order(self, other) <= 0

    def __ge__(self, other: Any) -> Any:
        return _order(self, other) >= 0

    def __eq__(self, other: Any) -> Any:
        return _order(self, other) == 0

    def __ne__(self, other: Any) -> Any:
        return _order(self, other) != 0


Ordered.__qualname__ = Ordered.__name__ = KEY.__name__
Ordered.__module__ = KEY.__module__


def _order(one: Ordered, other: Any) -> Any:
    if type(other) is not Ordered:
        raise TypeError("other argument must be K instance")
    return one.compare(one.obj, other.obj)


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], Ordered]:
    return lambda obj: Ordered(mycmp, obj)


def dispatched_method(method: Any, obj: Any, cls: Any = None) -> Any:
    """`functools.singledispatchmethod.__get__`, without its table of weak references."""
    dispatch = method.dispatcher.dispatch
    name = getattr(method.func, "__name__", "singledispatchmethod method")

    def chosen(*args: Any, **kwargs: Any) -> Any:
        if not args:
            raise TypeError(f"{name} requires at least 1 positional argument")
        return dispatch(args[0].__class__).__get__(obj, cls)(*args, **kwargs)

    chosen.__isabstractmethod__ = method.__isabstractmethod__  # type: ignore[attr-defined]
    chosen.register = method.register  # type: ignore[attr-defined]
    functools.update_wrapper(chosen, method.func)
    return chosen


def groupby(
    iterable: Iterable[Any], key: Callable[[Any], Any] | None = None
) -> Iterator[tuple[Any, Iterator[Any]]]:
    items = iter(iterable)
    waiting: Any = _NOTHING  # the first item of the next group, with its key
    current: Any = _NOTHING
    number = 0

    def group(mine: int) -> Iterator[Any]:
        nonlocal waiting, number
        while mine == number and waiting is not _NOTHING:
            item = waiting[1]
            waiting = _NOTHING
            yield item
            if mine != number:
                return
            for following in items:
                found = following if key is None else key(following)
                waiting = (found, following)
                if found != current:
                    return
                break

    for first in items:
        waiting = (first if key is None else key(first), first)
        break
    while waiting is not _NOTHING:
        current = waiting[0]
        number += 1
        made = group(number)
        yield current, made
        for _ in made:  # what the program has not taken is passed over
            pass
        if waiting is not _NOTHING and waiting[0] == current:
            for following in items:
                found = following if key is None else key(following)
                waiting = (found, following)
                if found != current:
                    break
            else:
                waiting = _NOTHING


def update_wrapper(
    wrapper: Any,
    wrapped: Any,
    assigned: Iterable[str] = functools.WRAPPER_ASSIGNMENTS,
    updated: Iterable[str] = functools.WRAPPER_UPDATES,
) -> Any:
    for name in assigned:
        try:
            value = getattr(wrapped, name)
        except AttributeError:
            pass
        else:
            setattr(wrapper, name, value)
    for name in updated:
        getattr(wrapper, name).update(getattr(wrapped, name, {}))
    wrapper.__wrapped__ = wrapped
    return wrapper


def restored(made: Any, state: Any) -> Any:
    """What `copy` and `pickle` do with the state of a new object."""
    if state is None:
        return made
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return made
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state is not None:
        made.__dict__.update(state)
    if slots is not None:
        for name, value in slots.items():
            setattr(made, name, value)
    return made


def length_hint(obj: Any, default: int = 0, /) -> int:
    default = operator.index(default)
    if not -sys.maxsize - 1 <= default <= sys.maxsize:
        raise OverflowError("Python int too large to convert to C ssize_t")
    try:
        return len(obj)
    except TypeError:
        pass
    hint = getattr(type(obj), "__length_hint__", None)
    if hint is None:
        return default
    try:
        found = hint(obj)
    except TypeError:
        return default
    if found is NotImplemented:
        return default
    if not isinstance(found, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(found).__name__}")
    if found < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return found


#: the class of the groups that `itertools.groupby` makes
GROUP: type = type(next(itertools.groupby((0,)))[1])


def count_elements(counts: Any, iterable: Iterable[Any]) -> None:
    """What `collections.Counter` counts with."""
    for item in iterable:
        counts[item] = counts.get(item, 0) + 1


#: classes in C whose items have keys alone
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, types.MappingProxyType,
             torch.Tensor)  # fmt: skip


def _check_sequence(kind: Any) -> None:
    """Raise what `PySequence_GetItem` says of a class whose items have no places."""
    if not hasattr(kind, "__getitem__"):
        raise TypeError(f"'{kind.__name__}' object does not support indexing")
    if kind in _MAPPINGS:
        raise TypeError(f"{kind.__name__} is not a sequence")


def _first(a: Any, lo: int, hi: Any, key: Any, comes_after: Callable[[Any], Any]) -> int:
    """The first place whose item comes after the one that is looked for, or the end."""
    if lo < 0:
        raise ValueError("lo must be non-negative")
    hi = len(a) if hi is None or hi == -1 else hi  # -1 is C's word for None
    if lo < hi:
        _check_sequence(type(a))
    while lo < hi:
        middle = (lo + hi) // 2
        if comes_after(a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    return _first(a, lo, hi, key, lambda item: x < item)


def bisect_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    return _first(a, lo, hi, key, lambda item: not item < x)


def replacing(pattern: Any, repl: Any, string: str, count: int = 0, flags: int = 0) -> str:
    """`re.sub` with a function."""
    compiled = re.compile(pattern, flags)
    compiled.subn("", string, count)  # raises what the arguments are to blame for
    parts = []
    place = 0
    for done, found in enumerate(compiled.finditer(string)):
        if count and done == count:
            break
        parts.append(string[place : found.start()])
        parts.append(repl(found))
        place = found.end()
    parts.append(string[place:])
    return "".join(parts)


def print_to(file: Any, values: tuple[Any, ...], sep: str, end: str, flush: bool) -> None:
    """`print`, to a file: each piece by itself."""
    for index, value in enumerate(values):
        if index:
            file.write(sep)
        file.write(str(value))
    file.write(end)
    if flush:
        file.flush()
