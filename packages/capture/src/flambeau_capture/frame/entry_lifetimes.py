"""Cache entries that end with the program's objects.

In: an entry of the frame cache with its guards. Out: its `Lifetime`. Invariant: an entry whose
guards ask for an object by identity can never run again once that object is gone; it leaves the
cache then, and with it go its graphs and what these hold: the parameters of a module. That it ended
says that what stands at the object's place varies, which the next conversion uses; where that
is news, the entry does not count against the limit. What is called at an object's end is not
captured; where the interpreter bears none, the entry leaves at the next call that it misses.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture._native import Entry, bears_callback, disabled
from flambeau_capture.guards.equality import Reference
from flambeau_capture.guards.guard import Guard
from flambeau_capture.guards.guardset import Guards

if TYPE_CHECKING:
    from flambeau_capture.frame.compiler import FrameCompiler


class Lifetime:
    """What an entry keeps alive, and what ends it. `cache` is referred to weakly: it has us."""

    def __init__(self, cache: Any, code: CodeType, converter: FrameCompiler) -> None:
        self.names = converter.names
        self._dynamics = converter.dynamics
        self._cache = weakref.ref(cache)
        self._code = code
        self._records = converter.records
        self._watched: list[weakref.ref[Any]] = []

    def ends_with(self, guards: Guards) -> None:
        """Watch the objects that the guards know by identity."""
        own, ending = weakref.ref(self), sys.is_finalizing  # at its end modules are emptied first

        @disabled
        def gone(_: weakref.ref[Any]) -> None:
            lifetime = own()
            if lifetime is not None and not ending():
                lifetime._end()

        self._watched = [
            weakref.ref(obj, gone if bears_callback(obj) else None)
            for obj in _known_by_identity(guards)
        ]

    def end_if_over(self) -> bool:
        """Whether an object is gone that the entry cannot run without, and the entry with it."""
        over = any(reference() is None for reference in self._watched)
        if over:
            self._end()
        return over

    def _end(self) -> None:
        cache = self._cache()
        self._watched = []
        if cache is None:
            return
        ended: list[Entry] = [e for e in cache.entries(self._code) if e.keepalive is self]
        for entry in ended:
            gone = list(_of_gone(entry.info))
            news = [self._dynamics.gone(self._code, s) for guard in gone for s in guard.sources]
            self._records.end(self._code, gone)
            cache.remove(self._code, entry, not any(news))
            named = [name for name in entry.code.co_names if name.startswith("__compiled_fn_")]
            self._records.forget(named, entry.info)
            for reference in _references(entry.info):
                reference.forget()
            self.names.release(in_use=cache.running > 0, named=named)


def _known_by_identity(guards: Guards) -> Iterator[Any]:
    met = {id(r): r for reference in _references(guards) if (r := reference()) is not None}
    weak = {id(reference()) for reference in _references(guards) if reference.weak is not None}
    yield from (met[place] for place in weak & met.keys())


def _of_gone(guards: Guards) -> Iterator[Guard]:
    """The guards that ask for an object that is no more."""
    for guard in guards.items:
        known = guard.params[0] if guard.params else None
        if isinstance(known, Reference) and known.weak is not None and known() is None:
            yield guard


def _references(guards: Guards) -> Iterator[Reference]:
    for guard in guards.items:
        if guard.params and isinstance(guard.params[0], Reference):
            yield guard.params[0]
