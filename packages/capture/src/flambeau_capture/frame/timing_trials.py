"""Timing trials: whether a frame with a graph break or a fallback runs faster uncaptured.

In: calls of such a frame. Out: which form each takes, and at the end a verdict. Invariant: no call
runs twice; a frame of one whole graph is never tried.

Once the frame was called twice with nothing compiled, its calls alternate in the order of the
Thue-Morse sequence, which repeats in no period of the program's own. After every five calls of each
form a rank test (Mann and Whitney, 1947) says whether one is slower than `MARGIN` times the other
beyond chance; after twenty of each without an answer the compiled form stays.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import NamedTuple

from flambeau_capture import _torch_compat as compat

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
