"""Kernels that are written once and filled in: matrix products with what follows them."""

from flambeau_inductor.templates.epilogue import Epilogue, NoEpilogue, epilogue_of
from flambeau_inductor.templates.product import Matrix, Product
from flambeau_inductor.templates.tiles import Tile, candidates
from flambeau_inductor.templates.writers import TemplateKernel, product_kernel

__all__ = [
    "Epilogue",
    "Matrix",
    "NoEpilogue",
    "Product",
    "TemplateKernel",
    "Tile",
    "candidates",
    "epilogue_of",
    "product_kernel",
]
