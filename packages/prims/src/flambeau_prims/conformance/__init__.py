"""The kit for authors of backends: sample calls, graphs, judges, the score card."""

from flambeau_prims.conformance.cases import Case, cases
from flambeau_prims.conformance.check import Backend, Declaration, Outcome, check
from flambeau_prims.conformance.mode import Decomposing
from flambeau_prims.conformance.programs import Program
from flambeau_prims.conformance.run import Plan, run
from flambeau_prims.conformance.score import ScoreCard

__all__ = [
    "Backend",
    "Case",
    "Declaration",
    "Decomposing",
    "Outcome",
    "Plan",
    "Program",
    "ScoreCard",
    "cases",
    "check",
    "run",
]
