"""Timing trials: whether a frame runs faster uncaptured.

In: calls of a frame. Out: which form each takes, and at the end a verdict. Invariant: no call runs
twice.

What is tried: a frame with a graph break or a fallback, by its code, a call at a time; a frame of
one whole graph, by its entry, a few calls in a row at a time, the fewer the longer they are. Of
these the shortest counts, as other programs' work delays it least. Where a result requires grad,
its backward pass is part of what a call of either kind costs: what counts is the time from its
beginning to that of the next.

Once the frame was called some times with nothing compiled, the forms alternate in the order of the
Thue-Morse sequence, which repeats in no period of the program's own. After every five turns of each
form a rank test (Mann and Whitney, 1947) says whether one is slower than `MARGIN` times the other
beyond chance; after `MOST` or `TURNS` of each without an answer the compiled form stays. So it does
as soon as a long call took `CLEAR` times as long uncaptured: nobody waits for five of these.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from flambeau_capture import _torch_compat as compat

MARGIN = 1.05
QUIET = 2
ROUND, MOST = 5, 20
SURE = 2.33
"""Standard deviations: chance explains it once in a hundred times."""

CALLS, TURNS = 8, 60
"""Calls of a turn of one whole graph; most turns of each form."""

LONG, FEW, CLEAR = 5e-3, 2, 1.5
"""Seconds of a call from which on a turn has at most `FEW` calls, and a trial `MOST` turns of each
form."""

Clock = Callable[[], float]
_trials = itertools.count()


@dataclass(frozen=True)
class TrialVerdict:
    """Medians in seconds of one call, and whether the frame runs as it is from now on; about: what
    was compiled; because: why it was no more."""

    function: str
    compiled: float
    plain: float
    slower: bool
    about: str = ", in parts"
    because: str = ""

    def __str__(self) -> str:
        form = "runs as it is" if self.slower else "stays compiled"
        return (
            f"{self.function} {form}: {1e3 * self.compiled:.4g} ms a call compiled{self.about}, "
            f"and {1e3 * self.plain:.4g} ms as it is{self.because}"
        )


class Trial:
    """The trial of one frame. `compilations` counts what its compiled callable has compiled."""

    def __init__(
        self,
        function: str,
        clock: Clock,
        compilations: Callable[[], int],
        decide: Callable[[TrialVerdict], None],
        because: str = "",
    ) -> None:
        self.function = function
        self.because = because
        self.clock = clock
        self.compilations = compilations
        self._decide = decide
        self._lock = threading.Lock()  # a turn at a time: two at once would disturb each other
        self._quiet = 0
        self._number = 0
        self._fresh = {True, False}  # forms whose first call is still to come
        self._before: Timed | None = None  # the call before, whose backward pass may go on
        self._samples = Samples()

    def begin(self) -> Turn | None:
        """The next call's turn; None: it is no part of the trial."""
        if not compat.can_be_timed():
            self._before = None  # this call would be part of its time
            return None
        compat.wait_for_devices()
        if not self._lock.acquire(blocking=False):
            return None
        plain = self._quiet >= QUIET and self._number.bit_count() % 2 == 1
        call = Timed(plain, self.compilations(), self.clock())
        before, self._before = self._before, None
        return Turn(plain, partial(self._end, call, before))

    def _end(self, call: Timed, before: Timed | None, finished: bool, result: Any) -> None:
        """A call is over: it has returned, or raised."""
        try:
            if finished:
                compat.wait_for_devices()
            seconds = self.clock() - call.began
            compiled_more = self.compilations() != call.compilations
            decided = (
                before is not None
                and before.compilations == call.compilations
                and self._note(before.plain, call.began - before.began)
            )
            if compiled_more or not finished or decided:
                self._quiet = 0 if compiled_more else self._quiet
            elif self._quiet < QUIET:
                self._quiet += 1
            else:
                self._number += 1
                if compat.requires_grad(result):
                    self._before = call
                else:
                    self._note(call.plain, seconds)
        finally:
            self._lock.release()

    def _note(self, plain: bool, seconds: float) -> bool:
        """Whether that decides it."""
        if plain in self._fresh:  # caches are cold in the first call of a form
            self._fresh.discard(plain)
            return False
        found = self._samples.verdict(plain, seconds)
        if found is not None:
            self._decide(TrialVerdict(self.function, *found, because=self.because))
        return found is not None


class Timed(NamedTuple):
    """A call: its form, what was compiled when it began, and when that was."""

    plain: bool
    compilations: int
    began: float


class Turn(NamedTuple):
    """One call of a frame on trial, in one of its forms; `end` takes whether it has returned, and
    what."""

    plain: bool
    end: Callable[[bool, Any], None]


class EntryTrial:
    """The trial of one entry, whose calls the frame hook times. `decide` is given the entry and the
    verdict."""

    def __init__(self, function: str, decide: Callable[[Any, TrialVerdict], None]) -> None:
        self.function = function
        self._decide = decide
        self._quiet = 0
        self._number = 11 * next(_trials)  # trials side by side do not go in step
        self._long = False
        self._samples = Samples()

    def begin(self) -> int:
        """Of how many calls the next turn is, 0 for none; of the original where it is negative."""
        if not compat.can_be_timed():
            return 0
        plain = self._quiet >= QUIET and self._number.bit_count() % 2 == 1
        calls = FEW if self._long else CALLS
        return -calls if plain else calls

    def end(
        self, entry: Any, plain: bool, seconds: float, period: float, disturbed: bool, result: Any
    ) -> None:
        """A turn is over. seconds: of its shortest call. period: the shortest time from the
        beginning of one to that of the next. disturbed: something was compiled meanwhile, or a call
        has raised. result: the last call's."""
        whole = period if compat.requires_grad(result) else seconds
        if disturbed:
            self._quiet = 0
        elif self._quiet < QUIET:
            self._quiet += 1
            if not self._long and LONG < whole < math.inf:
                self._long, self._samples = True, Samples(CLEAR)
        else:
            self._number += 1
            found = None if math.isinf(whole) else self._samples.verdict(plain, whole)
            if found is not None:
                self._decide(entry, TrialVerdict(self.function, *found, ""))


class Samples:
    """Seconds by form. clear: the other form is no further tried that takes so many times as long
    as the compiled one."""

    def __init__(self, clear: float = math.inf) -> None:
        self._clear = clear
        self._seconds: dict[bool, list[float]] = {True: [], False: []}

    def verdict(self, plain: bool, seconds: float) -> tuple[float, float, bool] | None:
        """With one more: medians of the compiled form and of the other, and whether the compiled
        one is slower; None as long as nobody knows."""
        self._seconds[plain].append(seconds)
        compiled, as_it_is = self._seconds[False], self._seconds[True]
        count = min(len(compiled), len(as_it_is))
        if count and min(as_it_is) > self._clear * max(compiled):
            return median(compiled), median(as_it_is), False
        if len(self._seconds[plain]) > count or count % ROUND:
            return None
        sure = certainty(compiled, [MARGIN * each for each in as_it_is])
        known = median(compiled), median(as_it_is)
        if abs(sure) > SURE or count >= (MOST if min(known) > LONG else TURNS):
            return *known, sure > SURE
        return None


def certainty(left: Sequence[float], right: Sequence[float]) -> float:
    """By how many standard deviations more pairs have a larger left than chance would give."""
    pairs = len(left) * len(right)
    larger = sum((one > other) + 0.5 * (one == other) for one in left for other in right)
    return (larger - pairs / 2) / math.sqrt(pairs * (len(left) + len(right) + 1) / 12)
