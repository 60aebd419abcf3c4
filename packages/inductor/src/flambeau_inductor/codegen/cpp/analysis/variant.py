"""Code variants of a C++ kernel, as data.

In: a `Plan`. Out: a few `Form`s by name, the neighbours of what the rules chose. Invariant: a form
changes neither what is computed nor which memory is touched; sums of floats may be formed in
another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MOST = 4
"""Forms of one kernel besides its own."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is left open (None) is for the rules to choose.

    vector_bytes: of a vector. lanes: along a reduction axis or one of the result's. accumulators:
    of an innermost reduction in vectors. columns: vectors per tile where rows are reduced. block:
    points of the other axis of a transposition. transposed: the last two axes swapped.
    """

    vector_bytes: int | None = None
    lanes: Literal["r", "x"] | None = None
    accumulators: int | None = None
    columns: int | None = None
    block: int | None = None
    transposed: bool = False


RULES = Form()
"""Everything as the rules have it."""

NARROW: Mapping[int, int] = {64: 32, 32: 16}
"""The next smaller vector."""
