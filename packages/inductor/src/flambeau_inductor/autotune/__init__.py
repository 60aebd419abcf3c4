"""Autotuning: choices by measurement, within a budget of seconds."""

from flambeau_inductor.autotune.benchmark import (
    BenchmarkOutcome,
    Budget,
    Candidate,
    ColdTimer,
    CpuClock,
    CudaClock,
    race,
)
from flambeau_inductor.autotune.kept_choices import ChoiceStore, Tuner

__all__ = [
    "Budget",
    "Candidate",
    "ColdTimer",
    "CpuClock",
    "CudaClock",
    "BenchmarkOutcome",
    "Tuner",
    "ChoiceStore",
    "race",
]
