"""Sample calls written by hand, one module a family; importing this package registers them."""

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
