"""Measured programs: models by library, and single kernels."""

from benchmarks.zoo.kernels import KERNELS
from benchmarks.zoo.large import LARGE
from benchmarks.zoo.models import MODELS

__all__ = ["KERNELS", "LARGE", "MODELS"]
