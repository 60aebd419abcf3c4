"""Hand-written sample calls, by family."""

from flambeau_prims.conformance.samples import (
    creation,
    images,
    indexing,
    library,
    matmul,
    numbers,
    order,
    reduction,
    rows,
    shape,
    special,
    systems,
)

__all__ = [
    "creation",
    "images",
    "indexing",
    "library",
    "matmul",
    "numbers",
    "order",
    "reduction",
    "rows",
    "shape",
    "special",
    "systems",
]
