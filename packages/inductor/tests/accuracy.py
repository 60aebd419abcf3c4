"""Errors that sums of float32 may have, whatever order a library adds in.

In: how many terms. Out: a bound of the root mean square of the error.
"""

from __future__ import annotations

import math

import torch


def of_sums_in_order(terms: int, scale: float = 1.0) -> float:
    """Error of sums of independent terms of that root mean square, added one after another: the sum
    of k terms is about sqrt(k) of one, and each addition rounds it by 0.29 of its last place."""
    return 0.29 * torch.finfo(torch.float32).eps * scale * terms / math.sqrt(2)
