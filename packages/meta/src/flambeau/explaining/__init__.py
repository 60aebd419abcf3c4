"""Explanations: `flambeau.explain`, what became of a function."""
