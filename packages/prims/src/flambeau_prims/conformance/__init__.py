"""The kit for authors of backends: sample calls of every primitive, and the table as a mode."""

from flambeau_prims.conformance.cases import Case, cases
from flambeau_prims.conformance.mode import Decomposing

__all__ = ["Case", "Decomposing", "cases"]
