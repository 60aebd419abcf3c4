"""Decompositions of pointwise operators."""

from flambeau_prims.decomp.pointwise import arithmetic, declared, powers, selection

__all__ = ["arithmetic", "declared", "powers", "selection"]
