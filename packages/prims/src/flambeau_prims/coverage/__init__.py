"""Coverage of ATen's overloads."""

from flambeau_prims.coverage.classify import Covered, classify, survey
from flambeau_prims.coverage.leaves import is_inert, leaf_reason

__all__ = ["Covered", "classify", "is_inert", "leaf_reason", "survey"]
