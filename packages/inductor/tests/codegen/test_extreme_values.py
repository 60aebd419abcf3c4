"""Pointwise primitives at the ends of every dtype: C++ kernels, Triton's under its interpreter and
the meaning of a loop each give eager's bits, where the primitive's class says so.

The three run the same loops, so a difference names its stage. Where a library that eager's CPU
kernels call does not round correctly, the right result counts as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flambeau_inductor.codegen.cpp.emit.pointwise import supports as cpp_supports
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.codegen.triton.pointwise import supports as triton_supports
from flambeau_inductor.ir import evaluate
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Store
from flambeau_prims.conformance.samples.special_values import Extreme, extremes, same

from tests.codegen import loops
from tests.codegen.cpp.run import built, vector_bytes
from tests.codegen.triton.run import run_loop as run_interpreted
from tests.poison import poisoned

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
HALF = (torch.float16, torch.bfloat16)
UNROUNDED = {"sqrt", "fmod", "remainder"}
"""By eager's libraries for a CPU: a root may be off by more than half a unit, and the remainder of
a large quotient is NaN."""


def _root(x: torch.Tensor) -> torch.Tensor:
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.sqrt(x.numpy()))


ROUNDED = {"sqrt": _root}
IN_STEPS = {"floor_div", "nextafter"}
"""Of half precision: eager rounds each step, which the decomposition says, or steps by another
distance, and the lowering refuses."""

Buffers = dict[str, torch.Tensor]


def groups(
    dtype: torch.dtype, runs: Callable[[Extreme], bool], every: int = 1
) -> list[tuple[Loop, list[Extreme]]]:
    """Loops of exact cases that share operands, `every` so many of them; each case's result is a
    buffer of its own."""
    shared: dict[tuple[int, int], list[Extreme]] = {}
    for case in extremes(dtype):
        if case.exact and runs(case) and not (dtype in HALF and case.name in IN_STEPS):
            case = replace(case, operands=tuple(o[::every].contiguous() for o in case.operands))
            shared.setdefault((len(case.operands), case.operands[0].numel()), []).append(case)
    made = []
    for number, ((arity, size), cases) in enumerate(shared.items()):
        body: list[Instr] = [Load(f"in{i}", loops.x(), dtype) for i in range(arity)]
        for position, case in enumerate(cases):
            result = case.function(*(o[:1] for o in case.operands)).dtype
            body.append(Point(case.name, tuple(range(arity)), result))
            body.append(Store(f"out{position}", loops.x(), len(body) - 1))
        made.append((loops.loop(f"extremes{number}", (size,), (), body), cases))
    return made


def buffers_of(cases: list[Extreme]) -> Buffers:
    """Operands, and poisoned memory for the results."""
    made = {f"in{i}": operand for i, operand in enumerate(cases[0].operands)}
    for position, case in enumerate(cases):
        result = case.function(*(o[:1] for o in case.operands)).dtype
        made[f"out{position}"] = poisoned(case.operands[0].numel(), dtype=result)
    return made


def differing(cases: list[Extreme], buffers: Buffers) -> list[str]:
    """What is not as in eager, with the first operands of each."""
    found = []
    for position, case in enumerate(cases):
        given, expected = buffers[f"out{position}"], case.function(*case.operands)
        right = same(expected, given, zeros=case.zeros)
        if case.name in UNROUNDED and expected.is_floating_point():
            exact = ROUNDED.get(case.name, case.function)(*(o.double() for o in case.operands))
            right |= same(exact.to(expected.dtype), given)
            right |= expected.isnan() & given.isfinite()
        if not bool(right.all()):
            at = int((~right).nonzero()[0])
            read = [o[at].item() for o in case.operands]
            found.append(f"{case.name}{read}: {expected[at].item()}, given {given[at].item()}")
    return found


def result_of(case: Extreme) -> torch.dtype:
    return case.function(*(o[:1] for o in case.operands)).dtype


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_as_cpp(dtype: torch.dtype, tmp_path: Path) -> None:
    def runs(case: Extreme) -> bool:
        return cpp_supports(case.name, [dtype] * len(case.operands), result_of(case))

    made = groups(dtype, runs)
    every = [(loop, cases, buffers_of(cases)) for loop, cases in made]
    for loop, cases, buffers in every:
        dtypes = {n: t.dtype for n, t in buffers.items()}
        source = generate([loop], dtypes.__getitem__, vector_bytes())
        library = built(source.text, tmp_path)
        entry = source.entries[loop.name]
        places = zip(entry.buffers, entry.offsets, strict=True)
        library.flambeau_kernel(entry.number)(*(buffers[n].data_ptr() + o for n, o in places))
        assert differing(cases, buffers) == []


# the interpreter drops bits of bfloat16 where the device rounds
@pytest.mark.sweep(4)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bfloat16], ids=str)
def test_interpreted_as_triton(dtype: torch.dtype, tmp_path: Path) -> None:
    for loop, cases in groups(dtype, lambda case: triton_supports(case.name, dtype), 7):
        buffers = buffers_of(cases)
        run_interpreted(loop, buffers, tmp_path)
        assert differing(cases, buffers) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_evaluated(dtype: torch.dtype) -> None:
    for loop, cases in groups(dtype, lambda case: True):
        buffers = buffers_of(cases)
        evaluate.run_loop(loop, buffers)
        assert differing(cases, buffers) == []
