"""Flambeau's primitive operations and the way from ATen to them."""

from flambeau_prims import ops
from flambeau_prims.__about__ import __version__
from flambeau_prims._op import DIALECT, PRIMS, NotYetSymbolic, Prim, PrimError, prim_of
from flambeau_prims.layout import TensorMeta
from flambeau_prims.table import decompositions

__all__ = [
    "DIALECT",
    "PRIMS",
    "NotYetSymbolic",
    "Prim",
    "PrimError",
    "TensorMeta",
    "__version__",
    "decompositions",
    "ops",
    "prim_of",
]
