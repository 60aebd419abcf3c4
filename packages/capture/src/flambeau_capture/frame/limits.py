"""Recompile limits by frame, source line and program, and timing trials.

In: what was compiled so far, and when; calls of a frame with a graph break or a fallback. Out:
whether to go on, with one warning that names what varies; whether a frame runs faster uncaptured.
Invariant: a program compiles a bounded number of times and for a bounded time, and is uncaptured
from then on where no entry fits. No call runs twice; a frame of one whole graph is never tried.

Rule of trials: once the frame was called twice with nothing compiled, its calls alternate in the
order of the Thue-Morse sequence, which repeats in no period of the program's own. After every five
calls of each form a rank test (Mann and Whitney, 1947) says whether one is slower than `MARGIN`
times the other beyond chance; after twenty of each without an answer the compiled form stays.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau_capture import _torch_compat as compat
from flambeau_capture.errors import RecompileError
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
    "CONSTANT_MATCH": "pass the number as a tensor, or use the value outside of the function",
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
    """The edit that helps where a guard keeps failing."""
    return _HINTS.get(failure.guard.kind.name, _OTHER)


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
        if failure is not None:
            seen = failure.in_words() + _before(failure, entries[1:], scope)
            text += f". The guard that failed last: {seen}. Try: {hint(failure)}"
        if converter.options.nopython:
            raise RecompileError(text)
        converter.settled(f"{name} ({place[1]}:{place[2]}): {text}")
        if place not in self._told:
            self._told.add(place)
            warn(text)


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


MARGIN = 1.05
QUIET = 2
ROUND, MOST = 5, 20
SURE = 2.33
"""Standard deviations: chance explains it once in a hundred times."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class TrialVerdict:
    """Medians in seconds of one call, and whether the frame runs as it is from now on."""

    function: str
    compiled: float
    plain: float
    slower: bool

    def __str__(self) -> str:
        form = "runs as it is" if self.slower else "stays compiled"
        return (
            f"{self.function} {form}: {1e3 * self.compiled:.3f} ms a call compiled, in parts, and "
            f"{1e3 * self.plain:.3f} ms as it is"
        )


class Trial:
    """The trial of one frame. `compilations` counts what its compiled callable has compiled."""

    def __init__(
        self,
        function: str,
        clock: Clock,
        compilations: Callable[[], int],
        decide: Callable[[TrialVerdict], None],
    ) -> None:
        self.function = function
        self.clock = clock
        self.compilations = compilations
        self._decide = decide
        self._lock = threading.Lock()  # a turn at a time: two at once would disturb each other
        self._quiet = 0
        self._number = 0
        self._fresh = {True, False}  # forms whose first call is still to come
        self._seconds: dict[bool, list[float]] = {True: [], False: []}

    def begin(self) -> Turn | None:
        """The next call's turn; None: it is no part of the trial."""
        if not compat.can_be_timed():
            return None
        compat.wait_for_devices()
        if not self._lock.acquire(blocking=False):
            return None
        plain = self._quiet >= QUIET and self._number.bit_count() % 2 == 1
        return Turn(plain, partial(self._end, plain, self.compilations(), self.clock()))

    def _end(self, plain: bool, compilations: int, began: float, finished: bool) -> None:
        """A call is over: it has returned, or raised."""
        try:
            if finished:
                compat.wait_for_devices()
            seconds = self.clock() - began
            compiled_more = self.compilations() != compilations
            if compiled_more or not finished:
                self._quiet = 0 if compiled_more else self._quiet
            elif self._quiet < QUIET:
                self._quiet += 1
            else:
                self._number += 1
                self._note(plain, seconds)
        finally:
            self._lock.release()

    def _note(self, plain: bool, seconds: float) -> None:
        if plain in self._fresh:  # caches are cold in the first call of a form
            self._fresh.discard(plain)
            return
        self._seconds[plain].append(seconds)
        compiled, as_it_is = self._seconds[False], self._seconds[True]
        count = min(len(compiled), len(as_it_is))
        if len(self._seconds[plain]) > count or count % ROUND:
            return
        sure = certainty(compiled, [MARGIN * each for each in as_it_is])
        if abs(sure) > SURE or count >= MOST:
            slower = sure > SURE
            self._decide(TrialVerdict(self.function, median(compiled), median(as_it_is), slower))


class Turn(NamedTuple):
    """One call of a frame on trial, in one of its forms; `end` takes whether it has returned."""

    plain: bool
    end: Callable[[bool], None]


def certainty(left: Sequence[float], right: Sequence[float]) -> float:
    """By how many standard deviations more pairs have a larger left than chance would give."""
    pairs = len(left) * len(right)
    larger = sum((one > other) + 0.5 * (one == other) for one in left for other in right)
    return (larger - pairs / 2) / math.sqrt(pairs * (len(left) + len(right) + 1) / 12)
