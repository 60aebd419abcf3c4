"""Triton templates: products, attention, convolutions, with epilogues."""

from flambeau_inductor.templates.gemm.epilogue import NoEpilogue, ProductEpilogue, epilogue_of
from flambeau_inductor.templates.gemm.problem import Matrix, Product
from flambeau_inductor.templates.gemm.tiles import GemmTile, candidates
from flambeau_inductor.templates.gemm.writers import product_kernel

__all__ = [
    "ProductEpilogue",
    "Matrix",
    "NoEpilogue",
    "Product",
    "GemmTile",
    "candidates",
    "epilogue_of",
    "product_kernel",
]
