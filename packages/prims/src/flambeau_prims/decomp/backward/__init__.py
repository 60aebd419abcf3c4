"""Decompositions of ATen's backward operators."""

from flambeau_prims.decomp.backward import activation, loss

__all__ = ["activation", "loss"]
