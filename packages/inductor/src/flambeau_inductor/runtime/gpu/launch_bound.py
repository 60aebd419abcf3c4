"""Launch-bound detection by measured runs.

In: measurements of runs: seconds that queueing took, and between two events of the device. Out: a
verdict, or none yet. Invariant: what others do can only make a measurement longer, so of several
the shortest of each kind count, and a verdict against a recording is never the last one.

On an H200 twelve other processes that compile made a backward graph of 5.1 ms take 12.6 and then
8.0 between its events, of which queueing took 5.3 and 5.8: by the first of them it was never worth
a recording, which saves a third of the step. What the queueing thread computes, in place of what it
takes, decided against it for 25 runs: where processors are shared the device waits for more.
"""

from __future__ import annotations

import math
from typing import Protocol

MEASURED_AT_ONCE = 3
"""Runs that are measured first. Later ones are when their number has doubled."""
DOMINATES = 0.6
"""Share of a run's time on the device that queueing it has to take."""


class LaunchWatch(Protocol):
    """A measurement of one run."""

    def stop(self) -> None:
        """All of the run is queued."""
        ...

    def seconds(self) -> tuple[float, float] | None:
        """What queueing took and what the device took, None while it has not finished."""
        ...


class Launching:
    """The measurements of one compiled graph; `runs` counts those it was asked about."""

    def __init__(self) -> None:
        self.runs = 0
        self.queueing = self.device = math.inf
        self._watch: LaunchWatch | None = None

    def dominates(self) -> bool:
        """Whether it does, by all runs that have ended."""
        taken = None if self._watch is None else self._watch.seconds()
        if taken is not None:
            self._watch = None
            self.queueing = min(self.queueing, taken[0])
            self.device = min(self.device, taken[1])
        return self.queueing < math.inf and self.queueing >= DOMINATES * self.device

    def due(self) -> bool:
        """Whether the run that comes is to be measured: none is while the last has not ended."""
        self.runs += 1
        often = self.runs <= MEASURED_AT_ONCE or self.runs & (self.runs - 1) == 0
        return often and self._watch is None

    def measure(self, watch: LaunchWatch) -> None:
        """The run that `watch` saw begin; it is asked for its seconds later."""
        self._watch = watch

    @property
    def undecided(self) -> bool:
        """Whether the first measurements are still to come."""
        return self.runs < MEASURED_AT_ONCE
