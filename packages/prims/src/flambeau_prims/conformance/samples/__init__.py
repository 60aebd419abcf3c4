"""Sample calls written by hand, one module a family; importing this package registers them."""

from flambeau_prims.conformance.samples import (
    creation,
    indexing,
    library,
    matmul,
    numbers,
    order,
    reduction,
    shape,
    special,
    systems,
)

__all__ = [
    "creation",
    "indexing",
    "library",
    "matmul",
    "numbers",
    "order",
    "reduction",
    "shape",
    "special",
    "systems",
]
