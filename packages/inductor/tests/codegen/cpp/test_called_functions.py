"""Functions that stand often in a loop: written once and called, to the same results, where calls
cost nothing at run time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.emit import pointwise
from flambeau_inductor.codegen.cpp.emit.pointwise import CALLED_COUNT
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Store

from tests.codegen import loops
from tests.codegen.cpp.run import run_loops, vector_bytes
from tests.poison import poisoned

OF_EACH_KIND = ("sin", "erf", "pow", "digamma", "erfinv")
"""Of instructions with a way out for some lanes, of instructions, two operands, a device function,
lane by lane."""
MANY = CALLED_COUNT + 1


def chain(op: str, size: int, dtype: torch.dtype, count: int = MANY) -> Loop:
    """`op` of `op` of `op` ..."""
    body: list[Instr] = [Load("in0", loops.x(), dtype)]
    binary = op in ("pow", "atan2", "nextafter", "fmod", "remainder", "floor_div")
    for at in range(count):
        body.append(Point(op, (at, 0) if binary else (at,), dtype))
    return loops.loop(op, (size,), (), [*body, Store(op, loops.x(), count)])


def beside(op: str, size: int, dtype: torch.dtype, count: int = MANY) -> Loop:
    """The sum of `op` of many."""
    body: list[Instr] = [Load("in0", loops.x(), dtype)]
    total = 0
    for _ in range(count):
        given = len(body)
        body.append(Point("add", (total, 0), dtype))
        body.append(Point(op, (given,), dtype))
        body.append(Point("add", (given, given + 1), dtype))
        total = given
    return loops.loop(op, (size,), (), [*body, Store(op, loops.x(), len(body) - 1)])


def text(loop: Loop) -> str:
    return generate([loop], lambda name: torch.float32, 32).text


@pytest.mark.parametrize("op", ["sin", "erf", "lgamma", "digamma"])
def test_a_chain_calls_and_writes_the_function_once(op: str) -> None:
    short, long = (
        text(chain(op, 1 << 20, torch.float32)),
        text(chain(op, 1 << 20, torch.float32, 99)),
    )
    for source, count in ((short, MANY), (long, 99)):
        assert source.count("FL_CALLED(") == 1
        assert source.count("called_") == count
    assert "called_" not in text(chain(op, 1 << 20, torch.float32, CALLED_COUNT - 1))


def test_what_is_computed_side_by_side_is_called_for_few_elements_only() -> None:
    """A processor overlaps functions that do not wait for one another, if they are no calls."""
    assert "called_sin" in text(beside("sin", 16, torch.float32))
    assert "called_" not in text(beside("sin", 1 << 20, torch.float32))
    assert "called_" not in text(chain("neg", 16, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_equal(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [chain(op, 37, dtype, 1) for op in OF_EACH_KIND]
    given = torch.rand(37).to(dtype)
    results = []
    for count in (1, CALLED_COUNT):
        monkeypatch.setattr(pointwise, "CALLED_COUNT", count)
        source = generate(made, lambda name: dtype, vector_bytes()).text
        assert source.count("FL_CALLED(") == (len(made) if count == 1 else 0)
        buffers = {"in0": given} | {op: poisoned(37, dtype=dtype) for op in OF_EACH_KIND}
        run_loops(made, buffers, tmp_path)
        results.append(buffers)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    for op in OF_EACH_KIND:
        assert torch.equal(results[0][op].view(bits), results[1][op].view(bits)), op
