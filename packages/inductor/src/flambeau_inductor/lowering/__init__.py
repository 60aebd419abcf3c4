"""From a graph of primitives to the tensor graph."""

from flambeau_inductor.lowering import (
    convolution,
    creation,
    embedding,
    indexing,
    library,
    pointwise,
    pooling,
    products,
    random,
    reduction,
    scan,
    scatter,
    shape,
)
from flambeau_inductor.lowering.context import LoweringError
from flambeau_inductor.lowering.graph import lower_graph
from flambeau_inductor.lowering.registry import RULES

__all__ = ["RULES", "LoweringError", "lower_graph"]
