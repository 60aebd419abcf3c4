"""Decompositions of ATen into primitives: importing a module registers its decompositions."""

from flambeau_prims.decomp import (
    backward,
    complex,
    creation,
    foreach,
    pointwise,
    reduction,
    sequences,
    sort,
    special,
)  # fmt: skip
from flambeau_prims.decomp.indexing import indexing, scatter
from flambeau_prims.decomp.linalg import matmul, norms, solve
from flambeau_prims.decomp.nn import (
    activation,
    batch_norm,
    convolution,
    embedding,
    loss,
    normalization,
    padding,
    pooling,
    rnn,
    sampling,
    softmax,
    upsample,
)  # fmt: skip
from flambeau_prims.decomp.random import random
from flambeau_prims.decomp.views import shape, strided, view
