"""Families of primitives: importing a module defines its primitives."""

from flambeau_prims.ops import (
    complex,
    creation,
    dynamic,
    effects,
    indexing,
    matmul,
    pointwise,
    reduction,
    shape,
    sort,
    views,
)  # fmt: skip
from flambeau_prims.ops.library import (
    attention,
    convolution,
    fft,
    linalg,
    pooling,
    rows,
    sampling,
    special,
)  # fmt: skip
