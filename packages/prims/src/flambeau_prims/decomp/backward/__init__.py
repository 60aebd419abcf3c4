"""Backward formulas as autograd calls them, where they are operations of their own."""

from flambeau_prims.decomp.backward import activation, loss

__all__ = ["activation", "loss"]
