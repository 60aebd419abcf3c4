"""Tolerances by dtype.

In: nothing. Out: a table. Invariant: relative to the size of the result as a whole.
"""

from __future__ import annotations

import torch

TOLERANCE = {
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.complex32: 1e-2,
    torch.complex64: 1e-5,
    torch.complex128: 1e-12,
}
"""Allowance relative to the size of the result, by dtype."""
