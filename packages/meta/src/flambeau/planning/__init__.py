"""`flambeau.plan`: what compiling a function would come to, before it is compiled."""

from flambeau.planning.calibrate import calibrate
from flambeau.planning.plan import Plan, plan

__all__ = ["Plan", "calibrate", "plan"]
