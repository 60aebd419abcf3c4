"""Scheduling: tensor graph to loops, library calls and lifetimes."""

from flambeau_inductor.schedule.schedule import schedule
from flambeau_inductor.schedule.tensor_program import Merge, Refusal
from flambeau_inductor.scheduling_limits import Limits

__all__ = ["Limits", "Merge", "Refusal", "schedule"]
