"""A matrix product as data.

In: nothing. Out: `Matrix` (where an operand lies) and `Product` (what is multiplied). Invariant:
sizes and strides are numbers, in elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Matrix:
    """Memory of an operand: strides along batch, rows and columns, in elements."""

    buffer: str
    strides: tuple[int, int, int]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Product:
    """`alpha * a @ b + beta * added`, `sizes` are batch, rows, columns and inner dimension."""

    a: Matrix
    b: Matrix
    sizes: tuple[int, int, int, int]
    dtype: torch.dtype
    added: Matrix | None = None
    alpha: float = 1.0
    beta: float = 1.0
    tf32: bool = False

    @property
    def outer(self) -> tuple[int, int, int]:
        """Batch, rows and columns."""
        return self.sizes[:3]
