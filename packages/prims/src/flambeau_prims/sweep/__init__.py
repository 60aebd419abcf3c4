"""Every operation of torch's OpInfo database through the table, compared with eager."""

from flambeau_prims.sweep.judge import Verdict, judge
from flambeau_prims.sweep.measure import DTYPES

__all__ = ["DTYPES", "Verdict", "judge"]
"""`judge(name, dtype)` is the sweep of one operation; `python -m flambeau_prims.sweep` of all."""
