"""What is measured on devices, as data, and a model of those that are not."""

from flambeau_inductor.tuning.machine import Machine, machine_of, shared_bytes_of
from flambeau_inductor.tuning.tuning import MEASURED, Tuning, tuning_for, tuning_of

__all__ = [
    "MEASURED",
    "Machine",
    "Tuning",
    "machine_of",
    "shared_bytes_of",
    "tuning_for",
    "tuning_of",
]
