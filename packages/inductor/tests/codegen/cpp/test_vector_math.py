"""Accuracy of the vector functions in float32, compiled, against mpmath."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...poison import poisoned
from ..accuracy import check_ulp
from .run import run_loop

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


@pytest.mark.parametrize("op", RANGES)
def test_error_in_units_of_the_last_place(op: str, tmp_path: Path) -> None:
    check_ulp(op, RANGES[op], poisoned(1), lambda loop, buffers: run_loop(loop, buffers, tmp_path))
