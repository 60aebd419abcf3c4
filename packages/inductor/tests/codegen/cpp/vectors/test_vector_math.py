"""The vector functions: their accuracy in float32, compiled, against mpmath; that every function
has a form on vectors where torch's library has SLEEF; remainders, which are exact."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from flambeau_inductor.codegen.cpp.emit.pointwise import FLOATING
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.ir.loops import Load, Point, Store
from flambeau_prims import PRIMS
from flambeau_prims._torch_compat import parameters
from tests.codegen import loops
from tests.codegen.accuracy import check_ulp
from tests.codegen.cpp.run import run_loop
from tests.poison import poisoned

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
    "erfc": (-5.0, 9.0, 4.0),
    "erfinv": (-0.9999, 0.9999, 1.0),
    "digamma": (0.01, 40.0, 1.0),
    "sinh": (-89.4, 89.4, 2.5),
    "cosh": (-89.4, 89.4, 2.5),
    "tan": (-8000.0, 8000.0, 2.5),
}


@pytest.mark.parametrize("op", RANGES)
def test_error_in_units_of_the_last_place(op: str, tmp_path: Path) -> None:
    check_ulp(op, RANGES[op], poisoned(1), lambda loop, buffers: run_loop(loop, buffers, tmp_path))


RARELY = {"fmod", "sin", "cos", "sinh", "cosh", "acosh", "asinh"}
"""Given to libm where a quotient or an argument (of `sin` and `cos` in float32) is large; the last
two, whose forms in SLEEF overflow, always."""


@pytest.mark.sweep(2)
@pytest.mark.skipif(not find_toolchain().sleef, reason="torch's library has no SLEEF")
@pytest.mark.parametrize(("dtype", "suffix"), [(torch.float32, "f"), (torch.float64, "")])
def test_no_function_of_floats_is_given_to_libm_lane_by_lane(
    dtype: torch.dtype, suffix: str, tmp_path: Path
) -> None:
    made, dtypes = [], {}
    for op in FLOATING:
        dtypes[f"{op}_out"] = torch.bool if op in ("isnan", "isinf", "isfinite") else dtype
        arity = len(parameters(PRIMS[op].overload))
        body = [Load(f"in{i}", loops.x(), dtype) for i in range(arity)]
        point = Point(op, tuple(range(arity)), dtypes[f"{op}_out"])
        store = Store(f"{op}_out", loops.x(), arity)
        made.append(loops.loop(op, (1000,), (), [*body, point, store]))
    toolchain = find_toolchain()
    source = generate(made, lambda name: dtypes.get(name, dtype), toolchain.vector_bytes)
    library = toolchain.build(source.text, tmp_path)
    listed = subprocess.run(["nm", "-D", "-u", library], capture_output=True, text=True).stdout
    wanted = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    assert len([name for name in wanted if name.startswith("Sleef_")]) >= 12
    assert {op for op in FLOATING if op + suffix in wanted} <= RARELY


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_remainder_is_exact_on_both_sides_of_a_multiple(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    whole = torch.randint(1, 2**22, (5000,)).to(dtype) * (torch.randint(2, (5000,)) * 2 - 1)
    divisor = torch.randn(5000, dtype=dtype) * 10.0 ** torch.randint(-30, 30, (5000,))
    product = whole * divisor
    for side in (0.0, float("inf"), -float("inf")):
        near = torch.nextafter(product, torch.full_like(product, side)) if side else product
        found = poisoned(5000, dtype=dtype)
        loop = loops.pointwise("fmod", 2, 5000, dtype, dtype)
        run_loop(loop, {"in0": near, "in1": divisor, "out": found}, tmp_path)
        exact = np.fmod(near.numpy(), divisor.numpy())
        assert np.array_equal(found.numpy().view(np.int8), exact.view(np.int8))
