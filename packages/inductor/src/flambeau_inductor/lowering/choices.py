"""Machine-dependent choices of lowering.

In: the options. Out: answers, found when they are first needed. Invariant: lowering itself neither
measures nor looks at the disk; without anybody to ask, the answer is torch's own choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Sizes = tuple[int, int, int]
"""Rows, terms and columns of a matrix product."""

LEAST_OPERATIONS = 1 << 22
"""Smaller products are over before another library's call has begun, as a rule."""


def torchs_own(sizes: Sizes) -> bool:
    """Leave the choice to torch."""
    del sizes
    return False


def no_epilogue(function: str) -> bool:
    """Leave what follows a call to a loop."""
    del function
    return False


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """`onednn_products`: whether oneDNN multiplies float32 matrices of these sizes faster than the
    BLAS; it is asked of products of at least so many operations. `epilogues`: whether oneDNN should
    apply a function (a key of `epilogues.FUNCTIONS`) to what it computes."""

    onednn_products: Callable[[Sizes], bool] = torchs_own
    least_operations: int = LEAST_OPERATIONS
    epilogues: Callable[[str], bool] = no_epilogue
