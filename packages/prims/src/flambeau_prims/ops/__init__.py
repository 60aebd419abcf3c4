"""The families of primitives; importing this package registers them all."""

from flambeau_prims.ops import (
    attention,
    convolution,
    creation,
    effects,
    indexing,
    matmul,
    pointwise,
    pooling,
    random,
    reduction,
    scan,
    shape,
)

__all__ = [
    "attention",
    "convolution",
    "creation",
    "effects",
    "indexing",
    "matmul",
    "pointwise",
    "pooling",
    "random",
    "reduction",
    "scan",
    "shape",
]
