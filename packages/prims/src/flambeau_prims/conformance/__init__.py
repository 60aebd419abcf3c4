"""Conformance kit for backends of primitives."""

from flambeau_prims.conformance.check import Backend, Declaration, Decomposing, KitOutcome, check
from flambeau_prims.conformance.programs.programs import KitProgram
from flambeau_prims.conformance.run import KitPlan, run
from flambeau_prims.conformance.samples.cases import cases
from flambeau_prims.conformance.samples.registry import Case
from flambeau_prims.conformance.score import ScoreCard

__all__ = [
    "Backend", "Case", "Declaration", "Decomposing", "KitOutcome", "KitPlan", "KitProgram",
    "ScoreCard", "cases", "check", "run",
]  # fmt: skip
