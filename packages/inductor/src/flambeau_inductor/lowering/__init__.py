"""Lowering of primitive graphs to the tensor graph."""

from flambeau_inductor.lowering.context import LoweringError
from flambeau_inductor.lowering.graph import lower_graph
from flambeau_inductor.lowering.registry import RULES
from flambeau_inductor.lowering.rules import (
    embedding,
    indexing,
    library,
    matmul,
    pointwise,
    pooling,
    reduction,
    scatter,
    shape,
)

__all__ = ["RULES", "LoweringError", "lower_graph"]
