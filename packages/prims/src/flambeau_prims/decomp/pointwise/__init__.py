"""Decompositions of pointwise operators."""

from flambeau_prims.decomp.pointwise import arithmetic, declared, selection

__all__ = ["arithmetic", "declared", "selection"]
