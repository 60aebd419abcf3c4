"""Primitive operators, and decompositions of ATen into them."""

from flambeau_prims import ops
from flambeau_prims.__about__ import DIALECT, __version__
from flambeau_prims._op import PRIMS, NotYetSymbolic, Prim, PrimError, prim_of
from flambeau_prims.canonicalize import lower
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.decomposition_table import KEEPABLE, decomposition
from flambeau_prims.dialect import DialectError, aten_leaves, verify
from flambeau_prims.shape_rules import TensorMeta

__all__ = [
    "DIALECT", "KEEPABLE", "PRIMS", "DialectError", "NotYetSymbolic", "Prim", "PrimError",
    "TensorMeta", "__version__", "aten_leaves", "decomposition", "decompositions", "lower", "ops",
    "prim_of", "verify",
]  # fmt: skip
