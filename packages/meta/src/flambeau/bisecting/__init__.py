"""Bisection: the layer, and the step within it, that makes an answer wrong."""

from flambeau.bisecting.bisect import bisect
from flambeau.bisecting.trials import Tried, Verdict

__all__ = ["Tried", "Verdict", "bisect"]
