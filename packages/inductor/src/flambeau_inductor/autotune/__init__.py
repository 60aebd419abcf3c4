"""Autotuning: choices by measurement, within a budget of seconds."""

from flambeau_inductor.autotune.benchmark import (
    BenchmarkOutcome,
    Budget,
    Candidate,
    ColdTimer,
    CpuClock,
    CudaClock,
    Tuner,
    race,
)

__all__ = [
    "Budget", "Candidate", "ColdTimer", "CpuClock", "CudaClock", "BenchmarkOutcome", "Tuner",
    "race",
]  # fmt: skip
