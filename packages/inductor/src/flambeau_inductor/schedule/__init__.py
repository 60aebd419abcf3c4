"""From the tensor graph to loops, library calls and lifetimes."""

from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.fuse.fuse import Merge, Refusal
from flambeau_inductor.schedule.schedule import Schedule, schedule, schedule_with_reasons

__all__ = ["Limits", "Merge", "Refusal", "Schedule", "schedule", "schedule_with_reasons"]
