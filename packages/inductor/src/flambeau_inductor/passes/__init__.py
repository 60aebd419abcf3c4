"""Rewrites of a graph of primitives before it is lowered."""

from flambeau_inductor.passes.run import PASSES, run

__all__ = ["PASSES", "run"]
