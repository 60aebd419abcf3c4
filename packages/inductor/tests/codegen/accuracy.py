"""Errors of float32 functions in units of the last place, against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import torch

from tests.codegen import loops

Run = Callable[[Any, dict[str, torch.Tensor]], None]

EXACT = {
    "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
    "exp2": lambda v: mpmath.mpf(2) ** v,
    "log2": lambda v: mpmath.log(v, 2),
    "lgamma": lambda v: mpmath.re(mpmath.loggamma(v)),
}


def check_ulp(op: str, bounds: tuple[float, float, float], out: torch.Tensor, run: Run) -> None:
    """Run `op` over `bounds` (low, high, ulps allowed) and near zero; assert the worst error.

    `out` is a poisoned tensor of one element: its fill is what the output starts with.
    """
    low, high, allowed = bounds
    tiny = np.logspace(-15, -1, 200)
    small = [tiny] if low > 0 else [tiny, -tiny]
    values = np.concatenate([np.linspace(low, high, 3000), *small]).astype(np.float32)
    found = out.repeat(len(values))
    loop = loops.pointwise(op, 1, len(values), torch.float32, torch.float32)
    run(loop, {"in0": torch.from_numpy(values), "out": found})
    exact = EXACT.get(op) or getattr(mpmath, op)
    with mpmath.workdps(30):
        wanted = [exact(mpmath.mpf(float(v))) for v in values]
        errors = [
            abs(float(mpmath.mpf(float(got)) - want)) / float(np.spacing(np.float32(abs(want))))
            for got, want in zip(found.tolist(), wanted, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= allowed, f"{op}({values[worst]}) is off by {errors[worst]:.1f} ulp"
