"""Coverage of ATen's overloads."""

from flambeau_prims.coverage.leaves import Covered, classify, is_inert, leaf_reason, survey

__all__ = ["Covered", "classify", "is_inert", "leaf_reason", "survey"]
