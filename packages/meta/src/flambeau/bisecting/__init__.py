"""`flambeau.bisect`: which layer, and which step in it, makes an answer wrong."""

from flambeau.bisecting.bisect import bisect
from flambeau.bisecting.verdict import Tried, Verdict

__all__ = ["Tried", "Verdict", "bisect"]
