"""Recompile limits by frame, source line and program.

In: what was compiled so far, and when. Out: whether to go on, with one warning that names what
varies. Invariant: a program compiles a bounded number of times and for a bounded time, and is
uncaptured from then on where no entry fits.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture.breaks import BreakReport
from flambeau_capture.errors import RecompileError
from flambeau_capture.guards.equality import Reference
from flambeau_capture.guards.guard import GuardFailure
from flambeau_capture.observe.logs import warn
from flambeau_capture.source import FrameCall, Scope

if TYPE_CHECKING:
    from flambeau_capture._native import Entry, FrameCache
    from flambeau_capture.frame.compiler import FrameCompiler

#: calls that are looked back on, and how many of them have to have compiled something
CALLS_BACK, CALLS_COMPILING = 32, 16

#: what helps, by the kind of the guard that fails
_HINTS = {
    "SIZES": "leave it open with `mark_dynamic`, or call it with few different values",
    "TENSOR_MATCH": "leave the size open with `mark_dynamic`, or pad to few different sizes",
    "CONSTANT_MATCH": "use the value outside of the function, or call it with few different ones",
    "ID_MATCH": "make the object once, outside of the function, and pass the same one again",
    "FUNCTION_MATCH": "make the function once, outside of the call, and pass the same one again",
    "TYPE_MATCH": "make the class once, or call it with objects of few different classes",
    "SUBCLASS": "make the class once, or call it with objects of few different classes",
    "NONE_MATCH": "decide on it outside of the function",
    "BOOL_MATCH": "decide on it outside of the function",
    "MODULE_TRAINING": "do not change the mode between calls",
    "GLOBAL_STATE": "do not change torch's modes between calls",
    **dict.fromkeys(
        ("LENGTH", "LIST_LENGTH", "TUPLE_LENGTH", "DICT_KEYS"),
        "keep its length, or pass a tensor in its place",
    ),
}
_OTHER = "keep it from changing between calls, or use it outside of the function"


def hint(failure: GuardFailure) -> str:
    """The edit that helps where a guard keeps failing: by its kind, and by what it compares."""
    guard = failure.guard
    compared = guard.params[0] if guard.kind.name == "CONSTANT_MATCH" else None
    if type(compared) in (int, float, complex):
        return "pass the number as a tensor, or use the value outside of the function"
    return _HINTS.get(guard.kind.name, _OTHER)


class LimitWarning:
    """Says once for each function of the program which guard keeps failing, with the values that it
    was seen with, and what helps. Resume functions are their function's own."""

    def __init__(self, converter: FrameCompiler, cache: FrameCache) -> None:
        self._converter = weakref.ref(converter)
        self._cache = weakref.ref(cache)
        self._told: set[tuple[str, str, int]] = set()

    def __call__(self, *call: Any) -> None:
        frame = FrameCall(*call)
        code, scope = frame.code, frame.scope()
        converter, cache = self._converter(), self._cache()
        if converter is None or cache is None:
            return
        name = converter.user_names.get(code, code.co_name)
        place = (name, code.co_filename, converter.names.origin(code).co_firstlineno)
        entries = cache.entries(code)
        ended = converter.records.ended.get(code, [])
        text = (
            f"{name} was compiled {len(entries) + len(ended)} times (cache_size_limit) and is not "
            f"compiled again: it runs as it is where no entry fits, with all that it calls"
        )
        missed = [entries[0].info.explain(scope)] if entries else []
        failure = next(iter([*missed, *converter.records.failures_of_ended(code, scope)]), None)
        broken = None if failure is None else _break_of_callee(failure, converter)
        if broken is not None:
            text += f". It goes on at another place each time. {broken.as_advice()}"
        elif failure is not None:
            seen = failure.in_words() + _before(failure, entries[1:], scope)
            text += f". The guard that failed last: {seen}. Try: {hint(failure)}"
        if converter.options.nopython:
            raise RecompileError(text)
        converter.settled(f"{name} ({place[1]}:{place[2]}): {text}")
        if place not in self._told:
            self._told.add(place)
            warn(text)


def _break_of_callee(failure: GuardFailure, converter: FrameCompiler) -> BreakReport | None:
    """Where a guard expects the resume function of a callee: the last break in that callee."""
    expected = failure.guard.params[0] if failure.guard.kind.name == "ID_MATCH" else None
    code = expected() if isinstance(expected, Reference) else expected
    if not isinstance(code, CodeType) or not converter.names.is_resumption(code):
        return None
    lines = [(each.user_line, each) for each in reversed(converter.records.breaks)]
    place = code.co_filename, code.co_name
    return next(
        (own for line, own in lines if line and (line.filename, line.function) == place), None
    )


def _before(failure: GuardFailure, entries: Sequence[Entry], scope: Scope) -> str:
    """What other entries expected of the same value."""
    others = [entry.info.explain(scope) for entry in entries if entry.info is not None]
    same = [one.expected for one in others if one and str(one.guard) == str(failure.guard)]
    shown = list(dict.fromkeys(text for text in same if text != failure.expected))
    return f" (before: {', '.join(shown[:6])})" if shown else ""


class Patience:
    """How long one compiled callable goes on compiling.

    Rule: of its last 32 calls at least 16 have compiled something, and that took more than
    `seconds`. Then it compiles nothing more. Equal code that is made anew (a function that `exec`
    makes in every call) counts as one function that is compiled again.
    """

    def __init__(self, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._spent: deque[tuple[int, float]] = deque()
        self._alike: dict[tuple[str, str, int, bytes], set[int]] = {}

    def spend(self, call: int, seconds: float) -> bool:
        """Something was compiled in this call; whether it was once too often."""
        spent = self._spent
        spent.append((call, seconds))
        while spent[0][0] <= call - CALLS_BACK:
            spent.popleft()
        calls = {number for number, _ in spent}
        return len(calls) >= CALLS_COMPILING and sum(cost for _, cost in spent) > self._seconds

    def made_again(self, code: CodeType, call: int) -> bool:
        """Note that a code object is seen for the first time; whether its like was in too many
        calls."""
        alike = (code.co_filename, code.co_name, code.co_firstlineno, code.co_code)
        calls = self._alike.setdefault(alike, set())
        calls.add(call)
        return len(calls) > self._limit
