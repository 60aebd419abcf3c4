"""Hand-written sample calls, by family: importing a module registers its samples."""

from flambeau_prims.conformance.samples import images, reduction, shape, systems

__all__ = ["images", "reduction", "shape", "systems"]
