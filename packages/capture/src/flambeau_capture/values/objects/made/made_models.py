"""Models of the classes in C whose objects a frame may make: how they are made again.

In: an object, the name of a method. Out: `MODELS`, a row a class: what makes an object of the same
state, what sets one of the program's to a state, which calls are answered by the clock, the locale,
files or other threads. Invariant: what a model makes is equal to the object, and shares nothing
with it.
"""

from __future__ import annotations

import array
import datetime
import decimal
import hashlib
import io
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from flambeau_capture._native import exports_buffer
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import NotConcrete, Tracer
from flambeau_capture.values.constant import Constant, shows_numbers_alone

Made = tuple[Callable[..., Any], tuple[Any, ...]]  # a function, and what it is called with


def _made_again(made: Any) -> Any:
    fn, args = MODELS[type(made)].made(made)
    return fn(*args)


def _made_of(made: Any) -> Any:
    """By what it is made, which says its state."""
    return tuple(state_of(part) for part in MODELS[type(made)].made(made)[1])


def state_of(made: Any) -> Any:
    """What two objects of a class have in common exactly if they are alike."""
    model = MODELS.get(type(made))
    return made if model is None else (type(made).__name__, model.state(made))


def _never(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    return False


@contextmanager
def nothing_around(tx: Tracer) -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Model:
    """What capture has to know of a class in C.

    `made`: the call that makes an object like one, where there is one. `fixed`: it
    never changes. `given`: those of the program that do are known by their `state`, of which
    capture has an `own` object, if they are `alone`: nothing shares their memory; `restore` sets
    one to the state that `made` says. `shown`: its
    hash and what it equals rest on its state, and its `text` too. `outside`:
    attributes and methods that ask for more than it knows; `waits`: calls of others that do.
    `carries`: methods that move items without looking at them. `around`: what a call on it depends
    on, and does besides.
    """

    made: Callable[[Any], Made]
    fixed: bool = False
    given: bool = False
    alone: Callable[[Any], bool] = lambda made: True
    state: Callable[[Any], Any] = _made_of
    own: Callable[[Any], Any] = _made_again
    restore: Callable[..., None] | None = None
    shown: bool = True
    text: bool = True
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


def _refill_array(made: Any, code: str, data: bytes) -> None:
    del made[:]
    made.frombytes(data)


def _refill_bytes(made: bytearray, data: bytes) -> None:
    made[:] = data


def _set_stream(made: Any, state: Any) -> None:
    if state is None:
        made.close()
    else:
        made.__setstate__(state)


def _new_text(state: Any) -> Any:
    made: Any = io.StringIO()
    _set_stream(made, state)
    return made


def _new_bytes(state: Any) -> Any:
    made: Any = io.BytesIO()
    _set_stream(made, state)
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


def _own_view(made: memoryview) -> memoryview:
    return _released_view() if _view_state(made) is None else memoryview(made)


def _view_state(made: memoryview) -> Any:
    try:
        return made.format, made.shape, made.strides, made.readonly, made.tobytes()
    except ValueError:  # it is released
        return None


# -- what nobody else may change ----------------------------------------------------------------


def _of_bytes(made: memoryview) -> bool:
    try:
        return type(made.obj) is bytes
    except ValueError:
        return True


def _unshared_array(made: Any) -> bool:
    try:
        del made[0:0]
    except BufferError:
        return False
    return True


def _unshared_stream(made: io.BytesIO) -> bool:
    try:
        return made.closed or made.write(b"") == 0
    except BufferError:
        return False


def _no_console(made: io.StringIO) -> bool:
    """Whether no message is written to it."""
    return made.closed or not any(made is one for one in (sys.stdout, sys.stderr))


def _times_acquired(made: Any) -> int:
    """How often this thread, which made it, has acquired a lock."""
    if not made._is_owned():
        return 0
    count, owner = made._release_save()
    made._acquire_restore((count, owner))
    return int(count)


# -- what decides more than the arguments ---------------------------------------------------------


def _lock_waits(made: Any, name: str, given: tuple[Any, ...]) -> bool:
    tries = bool(given) and given[0] in (False, 0)
    return name in ("acquire", "acquire_lock", "__enter__") and made.locked() and not tries


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

#: classes in whose memory a tensor may lie
BUFFERS = (bytearray, array.array)
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())
_HASHES = {type(getattr(hashlib, name)(b"")) for name in ("md5", "sha256", "blake2b", "blake2s")}
_OF_HASHES = Model(
    lambda made: (_copied, (made.copy(),)),
    given=True,
    state=lambda made: (made.name, made.digest()),
    shown=False,
)
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
    bytearray: Model(
        lambda made: (bytearray, (bytes(made),)),
        given=True,
        restore=_refill_bytes,
        alone=lambda made: not exports_buffer(made),
    ),
    array.array: Model(
        lambda made: (_new_array, (made.typecode, made.tobytes())),
        given=True,
        restore=_refill_array,
        outside=frozenset({"buffer_info", "tofile", "fromfile"}),
        alone=_unshared_array,
    ),
    memoryview: Model(
        _view_made, given=True, state=_view_state, own=_own_view, text=False, alone=_of_bytes
    ),
    io.StringIO: Model(
        _text_made,
        given=True,
        restore=_set_stream,
        shown=False,
        outside=_OF_FILES | {"newlines"},
        alone=_no_console,
    ),
    io.BytesIO: Model(
        lambda made: (_new_bytes, (_state(made),)),
        given=True,
        restore=_set_stream,
        shown=False,
        outside=_OF_FILES,
        alone=_unshared_stream,
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
    **dict.fromkeys(_HASHES, _OF_HASHES),
}  # fmt: skip
