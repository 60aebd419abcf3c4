"""What lowering asks about the machine.

In: the options. Out: answers, found when they are first needed. Invariant: lowering itself neither
measures nor looks at the disk; without anybody to ask, the answer is torch's own choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def torchs_own() -> bool:
    """Leave the choice to torch."""
    return False


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """`onednn_products`: whether oneDNN multiplies large float32 matrices faster than the BLAS."""

    onednn_products: Callable[[], bool] = torchs_own
