"""Accuracy of the device functions in float32, under the interpreter, against mpmath."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..accuracy import check_ulp
from .run import poisoned, run_loop

RANGES = {
    "erf": (-5.0, 5.0, 2.0),
    "tanh": (-12.0, 12.0, 3.0),
    "expm1": (-20.0, 20.0, 3.0),
    "log1p": (-0.99, 50.0, 3.0),
    "sigmoid": (-30.0, 30.0, 3.0),
    "atan": (-50.0, 50.0, 3.0),
    "asinh": (-50.0, 50.0, 4.0),
    "sinh": (-30.0, 30.0, 4.0),
    "erfc": (-5.0, 9.0, 1.0),
    "erfinv": (-0.999999, 0.999999, 1.0),
    "lgamma": (0.02, 60.0, 1.0),
    "digamma": (0.05, 60.0, 1.0),
}


@pytest.mark.parametrize("op", RANGES)
def test_error_in_units_of_the_last_place(op: str, tmp_path: Path) -> None:
    check_ulp(op, RANGES[op], poisoned(1), lambda loop, buffers: run_loop(loop, buffers, tmp_path))
