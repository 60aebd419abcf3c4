"""Operators on special values give eager's bits where their class says so, compiled for a CPU.

The cases are those that `tools/gpu/special_values.py` runs on a GPU; here a part of each dtype's,
which `FLAMBEAU_PART` chooses.
"""

from __future__ import annotations

import os

import pytest
import torch

from integration_tests.operators import numerics

PARTS = 3
KNOWN = {
    "gelu": "of float32 and bfloat16 a library's, and a unit more of float64",
    "gradient of gelu": "a library's; by a sigmoid, which below zero keeps digits that eager loses",
    "gradient of silu": "a unit more where two terms nearly cancel",
    "gradient of mish": "a unit more where two terms nearly cancel",
    "gradient of hardtanh": "at NaN behind the last vector",
    "gradient of elu": "at NaN behind the last vector",
    "digamma": "within 1e-14 of float64's, by another series",
    "tanhshrink": "a difference of equals: of float64 tanh may be one unit off",
    "gelu tanh": "a unit more of float64",
    "bessel_k": "by another expansion; at denormal operands infinite, where eager has NaN",
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("dtype", numerics.DTYPES, ids=str)
def test_special_values(dtype: torch.dtype) -> None:
    every = numerics.cases(dtype)
    first = int(os.environ.get("FLAMBEAU_PART", "0"))
    exact = [case for case in every if case.exact]
    near = [case for case in every if not case.exact]
    some = [*exact[first::PARTS], *near[first::PARTS]]
    found = [
        each
        for each in numerics.differences(some)
        if each.exact or not any(each.case.startswith(name) for name in KNOWN)
    ]
    assert found == []


def test_a_difference_is_seen() -> None:
    case = numerics.cases(torch.float32)[0]
    wrong = case.function(*case.operands).clone()
    wrong[3] = -wrong[3] - 1
    found = numerics.difference(case, wrong)
    assert found is not None and found.elements == 1
