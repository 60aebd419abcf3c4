"""Sweep of torch's OpInfo database through the decompositions, against eager.

`python -m flambeau_prims.sweep` runs all of it; `judge` is one operation at one dtype.
"""

from flambeau_prims.sweep.judge import SweepVerdict, judge
from flambeau_prims.sweep.run import SweepPlan, sweep

__all__ = ["SweepPlan", "SweepVerdict", "judge", "sweep"]
