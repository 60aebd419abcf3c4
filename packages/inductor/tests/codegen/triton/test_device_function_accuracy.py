"""Accuracy of the device functions in float32, under the interpreter, against mpmath."""

from __future__ import annotations

from pathlib import Path

import mpmath
import pytest
import torch
from flambeau_prims.ops.pointwise import POINTWISE

from tests.codegen import loops
from tests.codegen.accuracy import check_ulp
from tests.codegen.triton.run import run_loop
from tests.poison import poisoned

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


def test_tanh_from_end_to_end_of_float32(tmp_path: Path) -> None:
    """Every 9973th number of either sign, zeros, infinities and NaN."""
    bits = torch.arange(0, 0x7F800001, 9973, dtype=torch.int64).to(torch.int32)
    some = bits.view(torch.float32)
    x = torch.cat((some, -some, torch.tensor([float("inf"), -float("inf"), float("nan")])))
    loop = loops.pointwise("tanh", 1, len(x), torch.float32, torch.float32)
    found = poisoned(len(x))
    run_loop(loop, {"in0": x, "out": found}, tmp_path)
    exact = torch.tanh(x.double())
    ulp = torch.nextafter(exact.float().abs(), torch.tensor(2.0)) - exact.float().abs()
    assert torch.equal(torch.signbit(found[:-1]), torch.signbit(x[:-1]))
    assert found[-1].isnan()
    assert float(((found.double() - exact).abs() / ulp)[:-1].max()) < 2.0
    assert found[:-1].abs().max() == 1.0
    assert len(some) * 2 > 400_000


def test_tanh_of_double(tmp_path: Path) -> None:
    x = torch.cat((torch.logspace(-300, 2, 5000, dtype=torch.float64), torch.zeros(1).double()))
    x = torch.cat((x, -x))
    found = poisoned(len(x), dtype=torch.float64)
    loop = loops.pointwise("tanh", 1, len(x), torch.float64, torch.float64)
    run_loop(loop, {"in0": x, "out": found}, tmp_path)
    torch.testing.assert_close(found, torch.tanh(x), rtol=2e-14, atol=0)
    assert torch.equal(torch.signbit(found), torch.signbit(x))


def test_digamma_of_double(tmp_path: Path) -> None:
    """Within what its recurrence rounds, where the asymptotic series begins too."""
    x = torch.cat((torch.linspace(0.05, 12.0, 240), torch.arange(1, 13), torch.tensor([1e5, 1e17])))
    x = x.double()
    found = poisoned(len(x), dtype=torch.float64)
    loop = loops.pointwise("digamma", 1, len(x), torch.float64, torch.float64)
    run_loop(loop, {"in0": x, "out": found}, tmp_path)
    with mpmath.workdps(40):
        exact = [mpmath.digamma(mpmath.mpf(each)) for each in x.tolist()]
        errors = [abs(mpmath.mpf(a) - b) / max(1, abs(b)) for a, b in zip(found.tolist(), exact)]
    assert max(errors) < POINTWISE["digamma"].error
