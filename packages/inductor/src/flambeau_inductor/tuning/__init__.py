"""Tuning data of measured devices, and a model of those that are not."""

from flambeau_inductor.tuning.machine import (
    MEASURED,
    HostTuning,
    Machine,
    Processor,
    Tuning,
    host_tuning,
    host_tuning_for,
    machine_of,
    shared_bytes_of,
    tuning_for,
    tuning_of,
)

__all__ = [
    "MEASURED", "HostTuning", "Machine", "Processor", "Tuning", "host_tuning", "host_tuning_for",
    "machine_of", "shared_bytes_of", "tuning_for", "tuning_of",
]  # fmt: skip
