"""Where results are allowed to differ from eager, and why.

In: an operation of the database and a dtype. Out: the reason, or None.
Invariant: short, and each entry is a sentence that a user can check.
"""

from __future__ import annotations

# (operation, dtype or "*"): reason
DIFFERENCES: dict[tuple[str, str], str] = {}


def difference(name: str, dtype: str) -> str | None:
    """The reason why `name` may differ at `dtype`; None if it may not."""
    return DIFFERENCES.get((name, dtype)) or DIFFERENCES.get((name, "*"))
