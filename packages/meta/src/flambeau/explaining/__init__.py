"""Explanations: `flambeau.explain`, what became of a function."""

from flambeau.explaining.explain import explain
from flambeau.explaining.explanation import (
    BreakFacts,
    Explanation,
    GraphFacts,
    KeptInEager,
    RecompileFacts,
)

__all__ = ["BreakFacts", "Explanation", "GraphFacts", "KeptInEager", "RecompileFacts", "explain"]
