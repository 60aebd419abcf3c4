"""Polyfills of what `functools` makes of a function: caches, and functions that choose by class.

In, out: what the functions of the same name take and give. Invariant: what is made here never
leaves the frame that made it.
"""

from __future__ import annotations

import builtins
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

_MARK = object()
_NOTHING = object()
#: the class of cached functions, which CPython has in C
CACHED: type = functools._lru_cache_wrapper


class Cached:
    """A function with a cache of its latest answers, the latest last."""

    def __init__(
        self, user_function: Callable[..., Any], maxsize: int | None, typed: bool, cache_info: Any
    ) -> None:
        if maxsize is not None and not isinstance(maxsize, int):
            raise TypeError("maxsize should be integer or None")
        if not callable(user_function):
            raise TypeError("the first argument must be callable")
        self._function = user_function
        self._maxsize = None if maxsize is None else max(maxsize, 0)
        self._typed = typed
        self._info = cache_info
        self.cache_clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._maxsize == 0:
            self._misses += 1
            return self._function(*args, **kwargs)
        key: Any = args
        if kwargs:
            for item in kwargs.items():
                key = (*key, _MARK, *item)
        if self._typed:
            key = (*key, *[type(one) for one in args], *[type(one) for one in kwargs.values()])
        elif len(key) == 1 and (type(args[0]) is int or type(args[0]) is str):
            key = args[0]  # which differs from an equal argument of another class
        found = self._answers.get(key, _NOTHING)
        if found is not _NOTHING:
            self._hits += 1
            del self._answers[key]
            self._answers[key] = found
            return found
        self._misses += 1
        found = self._function(*args, **kwargs)
        if key not in self._answers:
            if self._maxsize is not None and len(self._answers) >= self._maxsize:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = found
        return found

    def cache_info(self) -> Any:
        return self._info(self._hits, self._misses, self._maxsize, len(self._answers))

    def cache_clear(self) -> None:
        self._hits = self._misses = 0
        self._answers: dict[Any, Any] = {}

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)

    def __copy__(self) -> Cached:
        return self

    def __deepcopy__(self, memo: Any) -> Cached:
        return self


Cached.__qualname__ = Cached.__name__ = CACHED.__name__
Cached.__module__ = CACHED.__module__


def best_class(kind: type, known: tuple[type, ...]) -> Any:
    """Which of some classes `functools.singledispatch` chooses for one."""
    return functools._find_impl(kind, {one: one for one in known})  # type: ignore[attr-defined]


def singledispatch(func: Any) -> Any:
    registry: dict[Any, Any] = {object: func}
    name = getattr(func, "__name__", "singledispatch function")

    def dispatch(cls: Any) -> Any:
        known = (*registry,)
        _ = cls.__mro__, [issubclass(cls, one) for one in known]  # which is guarded
        return registry[best_class(cls, known)]

    def register(cls: Any, func: Any = None) -> Any:
        if _are_classes(cls):
            if func is None:
                return lambda f: register(cls, f)
        else:
            if func is not None:
                said = "is not a class or union type."
                raise TypeError(f"Invalid first argument to `register()`. {cls!r} {said}")
            if not getattr(cls, "__annotations__", {}):
                raise TypeError(
                    f"Invalid first argument to `register()`: {cls!r}. "
                    f"Use either `@register(some_class)` or plain `@register` "
                    f"on an annotated function."
                )
            func = cls
            argname, cls = next(iter(func.__annotations__.items()))
            if isinstance(cls, str) and cls in func.__globals__:
                cls = func.__globals__[cls]
            elif isinstance(cls, str):
                cls = getattr(builtins, cls, cls)
            if not isinstance(cls, type):
                argname, cls = next(iter(typing.get_type_hints(func).items()))
            if not _are_classes(cls):
                said = "is not a class."
                if typing.get_origin(cls) in _UNIONS:
                    said = "not all arguments are classes."
                raise TypeError(f"Invalid annotation for {argname!r}. {cls!r} {said}")
        for one in (cls,) if isinstance(cls, type) else typing.get_args(cls):
            registry[one] = func
        return func

    def wrapper(*args: Any, **kw: Any) -> Any:
        if not args:
            raise TypeError(f"{name} requires at least 1 positional argument")
        return dispatch(args[0].__class__)(*args, **kw)

    wrapper.register = register  # type: ignore[attr-defined]
    wrapper.dispatch = dispatch  # type: ignore[attr-defined]
    wrapper.registry = types.MappingProxyType(registry)  # type: ignore[attr-defined]
    functools.update_wrapper(wrapper, func)
    return wrapper


_UNIONS = (typing.Union, types.UnionType)


def _are_classes(kind: Any) -> bool:
    if isinstance(kind, type):
        return True
    if isinstance(kind, types.FunctionType) or typing.get_origin(kind) not in _UNIONS:
        return False
    return all(isinstance(one, type) for one in typing.get_args(kind))
