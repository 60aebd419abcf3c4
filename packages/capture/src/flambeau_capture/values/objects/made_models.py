"""Models of the classes in C whose objects a frame may make: how they are made again.

In: an object of capture's own, the name of a method. Out: `MODELS`, a row a class: what makes an
object of the same state, what copies it, which calls are answered by the clock, the locale, files
or other threads. Invariant: what a model makes is equal to the object, and shares nothing with it.
"""

from __future__ import annotations

import array
import datetime
import decimal
import hashlib
import io
import random
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import NotConcrete, Tracer
from flambeau_capture.values.constant import Constant, shows_numbers_alone

Made = tuple[Callable[..., Any], tuple[Any, ...]]  # a function, and what it is called with


def _never(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    return False


@contextmanager
def nothing_around(tx: Tracer) -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Model:
    """What capture has to know of a class in C.

    `made`: the call that makes an object like one, where there is one. `fixed`: it
    never changes. `shown`: its text, its hash and what it equals rest on its state. `outside`:
    attributes and methods that ask for more than it knows; `waits`: calls of others that do.
    `carries`: methods that move items without looking at them. `around`: what a call on it depends
    on, and does besides.
    """

    made: Callable[[Any], Made]
    fixed: bool = False
    shown: bool = True
    outside: frozenset[str] = frozenset()
    waits: Callable[[Any, str, tuple[Any, ...]], bool] = _never
    carries: frozenset[str] = frozenset()
    around: Callable[[Tracer], AbstractContextManager[None]] = nothing_around
    plain: Callable[[Any], bool] = lambda made: True


def _reduced(made: Any) -> Made:
    """An object that never changes, as `pickle` makes it."""
    fn, args = made.__reduce_ex__(4)[:2]
    return fn, args


# -- what is made again in its state -----------------------------------------------------------


def _new_array(code: str, data: bytes) -> Any:
    made = array.array(code)
    made.frombytes(data)
    return made


def _new_text(state: Any) -> Any:
    made: Any = io.StringIO()
    if state is None:
        made.close()
    else:
        made.__setstate__(state)
    return made


def _new_bytes(state: Any) -> Any:
    made: Any = io.BytesIO()
    if state is None:
        made.close()
    else:
        made.__setstate__(state)
    return made


def _new_random(state: Any) -> random.Random:
    made = random.Random()
    made.setstate(state)
    return made


def _acquired(make: Callable[[], Any], times: int) -> Any:
    made = make()
    for _ in range(times):
        made.acquire()
    return made


def _copied(made: Any) -> Any:
    return made.copy()


def _state(made: Any) -> Any:
    return None if made.closed else made.__getstate__()


def _text_made(made: io.StringIO) -> Made:
    if not made.closed and made.newlines is not None:
        raise NotConcrete("the line ends that it has read")
    return _new_text, (_state(made),)


def _released_view() -> memoryview:
    made = memoryview(b"")
    made.release()
    return made


def _view_made(made: memoryview) -> Made:
    try:
        len(made)
    except ValueError:
        return _released_view, ()
    raise NotConcrete("a view of what is not known")


def _times_acquired(made: Any) -> int:
    """How often this thread, which made it, has acquired a lock."""
    if not made._is_owned():
        return 0
    count, owner = made._release_save()
    made._acquire_restore((count, owner))
    return int(count)


# -- what decides more than the arguments ---------------------------------------------------------


def _lock_waits(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    return name in ("acquire", "acquire_lock", "__enter__") and made.locked()


def _draws(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    """Whether numbers are drawn from the system."""
    return name in ("seed", "__init__") and (not given or given[0] is None)


def _by_locale(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    if name not in ("__format__", "strftime") or len(given) != 1 or type(given[0]) is not str:
        return name in ("__format__", "strftime")
    return not shows_numbers_alone(given[0])


def _by_zone(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    local = name in ("timestamp", "astimezone") and made.tzinfo is None
    return local or (name == "astimezone" and not given) or _by_locale(made, name, given)


def _known_zone(made: Any) -> bool:
    return made.tzinfo is None or type(made.tzinfo) is datetime.timezone


_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")


@dataclass(frozen=True)
class _ContextIs:
    """A guard's question: the decimal context of the thread computes as it did."""

    state: tuple[Any, ...]

    def __call__(self, get: Any) -> bool:
        return context_state(get()) == self.state


def context_state(context: decimal.Context) -> tuple[Any, ...]:
    *numbers, traps = (getattr(context, name) for name in _CONTEXT)
    return (*numbers, tuple(name.__name__ for name, is_set in traps.items() if is_set))


def _raise_flags(names: str) -> None:
    for name in names.split():
        decimal.getcontext().flags[getattr(decimal, name)] = True


@contextmanager
def _in_decimal_context(tx: Tracer) -> Iterator[None]:
    """Computed as the program's context says; the flags are raised when the generated code runs."""
    context = decimal.getcontext()
    state = context_state(context)
    where = ConstantSource(decimal.getcontext, "decimal.getcontext")
    tx.guard(where, "CALL", _ContextIs(state), "computes as it did")
    own = context.copy()
    own.clear_flags()
    try:
        with decimal.localcontext(own) as inside:
            try:
                yield
            finally:
                raised = [flag.__name__ for flag, is_set in inside.flags.items() if is_set]
    finally:
        for name in raised:
            tx.heap.log(DeferredCall(_raise_flags, [Constant(name)]))


# -- the table --------------------------------------------------------------------------------

_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())
_HASH = type(hashlib.md5(b""))
_OF_THE_CLOCK = frozenset({"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp"})
_OF_THE_LOCALE = frozenset({"strptime"})
_OF_FILES = frozenset({"__dict__", "__del__", "readinto1", "detach", "fileno", "getbuffer"})
_DATES = _OF_THE_CLOCK | _OF_THE_LOCALE

unguarded(
    "objects of classes in C that the frame makes: dates, decimals, `bytearray`, `StringIO`, locks",
    "their state is known: the frame made them of what is known, and nobody else has them",
)

MODELS: dict[type, Model] = {
    datetime.date: Model(_reduced, fixed=True, outside=_DATES, waits=_by_locale),
    datetime.datetime: Model(
        _reduced, fixed=True, outside=_DATES, waits=_by_zone, plain=_known_zone
    ),
    datetime.time: Model(
        _reduced, fixed=True, outside=_DATES, waits=_by_locale, plain=_known_zone
    ),
    datetime.timedelta: Model(_reduced, fixed=True),
    datetime.timezone: Model(_reduced, fixed=True),
    decimal.Decimal: Model(_reduced, fixed=True, around=_in_decimal_context),
    struct.Struct: Model(
        lambda made: (struct.Struct, (made.format,)),
        fixed=True,
        shown=False,
        outside=frozenset({"__init__"}),
    ),
    bytearray: Model(lambda made: (bytearray, (bytes(made),))),
    array.array: Model(
        lambda made: (_new_array, (made.typecode, made.tobytes())),
        outside=frozenset({"buffer_info", "tofile", "fromfile"}),
    ),
    memoryview: Model(_view_made),
    io.StringIO: Model(_text_made, shown=False, outside=_OF_FILES | {"newlines"}),
    io.BytesIO: Model(
        lambda made: (_new_bytes, (_state(made),)), shown=False, outside=_OF_FILES
    ),
    random.Random: Model(
        lambda made: (_new_random, (made.getstate(),)),
        shown=False,
        outside=frozenset({"__dict__", "gauss_next", "__reduce__", "__getstate__", "__setstate__"}),
        waits=_draws,
        carries=frozenset({"shuffle", "choice", "sample"}),
    ),
    _LOCK: Model(
        lambda made: (_acquired, (threading.Lock, int(made.locked()))),
        shown=False,
        waits=_lock_waits,
    ),
    _RLOCK: Model(
        lambda made: (_acquired, (threading.RLock, _times_acquired(made))),
        shown=False,
        outside=frozenset({"_release_save", "_acquire_restore", "_recursion_count"}),
    ),
    _HASH: Model(lambda made: (_copied, (made.copy(),)), shown=False),
}  # fmt: skip
