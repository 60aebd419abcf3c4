"""Instructions of exact operators, compiled for a GPU with none there: IEEE 754's, each rounded.

Of those that are rounded once by themselves one in three; all with FLAMBEAU_SWEEPS=1 (`nox -s
sweeps`).
"""

from __future__ import annotations

import json

import pytest
from tests import uninterpreted

pytestmark = pytest.mark.sweep
ROUNDED_ONCE = {"fma"}
"""Only where a formula says so: the long division of `fmod` has exact products."""
INEXACT = {"approx", "full", "ftz", "sat"}
"""Modifiers of PTX instructions that are off by a unit, or take denormal numbers for zero."""


@pytest.fixture(scope="module")
def instructions() -> dict[str, list[str]]:
    """The float instructions of each kernel, from a process whose interpreter is off."""
    program = "tests.codegen.triton.offline.compile_exact"
    found: dict[str, list[str]] = json.loads(uninterpreted.run("-m", program, "90"))
    return found


def test_no_instruction_is_approximate(instructions: dict[str, list[str]]) -> None:
    assert len(instructions) > 25
    off = {n: [i for i in each if INEXACT & set(i.split("."))] for n, each in instructions.items()}
    assert {name: found for name, found in off.items() if found} == {}


def test_operators_are_not_contracted(instructions: dict[str, list[str]]) -> None:
    of_formulas = ("fmod", "remainder", "floor_div")
    fused = {
        name: each
        for name, each in instructions.items()
        if any(i.split(".")[0] in ROUNDED_ONCE for i in each) and not name.startswith(of_formulas)
    }
    assert fused == {}
    assert {"mul.rn.f32", "sub.rn.f32"} <= set(instructions["product_and_difference float32"])


def test_quotients_and_roots_are_rounded_to_nearest(instructions: dict[str, list[str]]) -> None:
    for dtype, kind in (("float32", "f32"), ("float64", "f64"), ("float16", "f32")):
        for name, operation in (("div", "div"), ("reciprocal", "div"), ("sqrt", "sqrt")):
            assert f"{operation}.rn.{kind}" in instructions[f"{name} {dtype}"], (name, dtype)


def test_conversions_to_integers_are_the_devices(instructions: dict[str, list[str]]) -> None:
    """As eager's kernels for CUDA convert: what 32 or 64 bits do not hold is the nearest that they
    do, of fewer bits the low ones are taken. Constants too, whose conversion is undefined else."""
    for dtype, kind in (("float32", "f32"), ("float64", "f64"), ("float16", "f32")):
        for result in ("uint8", "int8", "int16", "int32", "int64"):
            bits = 64 if result in ("int64", "uint8") else 32
            found = instructions[f"{result}_of_infinities {dtype}"]
            assert f"cvt.rzi.s{bits}.{kind}" in found, (result, dtype, found)
