"""Hand-written sample calls, by family: importing a module registers its samples."""

from flambeau_prims.conformance.samples import images, linear_algebra, reduction, shape  # fmt: skip

__all__ = ["images", "linear_algebra", "reduction", "shape"]
