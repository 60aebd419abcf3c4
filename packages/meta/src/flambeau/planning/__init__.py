"""Plans: what compiling a function would cost, before it is compiled."""

from flambeau.planning.model import calibrate
from flambeau.planning.plan import Plan, plan

__all__ = ["Plan", "calibrate", "plan"]
