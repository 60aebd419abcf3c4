"""Choosing among ways to compute the same by measurement, within a budget of seconds."""

from flambeau_inductor.autotune.clocks import Clock, CpuClock, CudaClock
from flambeau_inductor.autotune.race import Budget, Candidate, Outcome, race
from flambeau_inductor.autotune.tuned import Tuner, Values

__all__ = [
    "Budget",
    "Candidate",
    "Clock",
    "CpuClock",
    "CudaClock",
    "Outcome",
    "Tuner",
    "Values",
    "race",
]
