"""Accuracy of the vector functions in float32, compiled, against mpmath."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from .. import loops
from .run import poisoned, run_loop

RANGES = {
    "erf": (-5.0, 5.0, 2.0),
    "tanh": (-12.0, 12.0, 3.0),
    "expm1": (-20.0, 20.0, 3.0),
    "log1p": (-0.99, 50.0, 3.0),
    "sigmoid": (-30.0, 30.0, 3.0),
    "exp": (-86.0, 88.0, 2.0),
    "exp2": (-125.0, 127.0, 2.0),
    "log": (1e-30, 1e5, 2.0),
    "sin": (-8000.0, 8000.0, 2.5),
    "cos": (-8000.0, 8000.0, 2.5),
    "log2": (1e-30, 1e5, 2.5),
    "log10": (1e-30, 1e5, 2.5),
}
EXACT = {
    "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
    "exp2": lambda v: mpmath.mpf(2) ** v,
    "log2": lambda v: mpmath.log(v, 2),
}


@pytest.mark.parametrize("op", RANGES)
def test_error_in_units_of_the_last_place(op: str, tmp_path: Path) -> None:
    low, high, allowed = RANGES[op]
    tiny = np.logspace(-15, -1, 200)
    small = [tiny] if low > 0 else [tiny, -tiny]
    values = np.concatenate([np.linspace(low, high, 3000), *small]).astype(np.float32)
    a, out = torch.from_numpy(values), poisoned(len(values))
    loop = loops.pointwise(op, 1, len(values), torch.float32, torch.float32)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    exact = EXACT.get(op) or getattr(mpmath, op)
    with mpmath.workdps(30):
        wanted = [exact(mpmath.mpf(float(v))) for v in values]
        errors = [
            abs(float(mpmath.mpf(float(got)) - want)) / float(np.spacing(np.float32(abs(want))))
            for got, want in zip(out.tolist(), wanted, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= allowed, f"{op}({values[worst]}) is off by {errors[worst]:.1f} ulp"
