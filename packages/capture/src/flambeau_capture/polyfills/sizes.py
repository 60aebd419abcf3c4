"""Polyfills of `torch._check` and its relatives.

In, out: what torch's functions of the same names take and give. Invariant: of a number that stands
for a size, the condition is known when the check has been captured.
"""

from __future__ import annotations

from typing import Any

import torch


def check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Whether a number is a size, and no larger than `max`."""
    torch._check(i >= 0, message)
    if max is not None:
        torch._check(i <= max, message)
