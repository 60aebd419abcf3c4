"""Whole programs with every loop compiled as C++, held to eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.ir import evaluate
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import schedule
from torch import fx

from tests.codegen.cpp.run import built, vector_bytes
from tests.lowering.test_programs import CASES


def kernels_of(program: Program, folder: Path) -> Callable[[Loop, Mapping[str, Any]], None]:
    """Something that runs a loop of `program` by its kernel, as `evaluate.run_loop` does."""
    dtypes = {b.name: b.layout.dtype for b in (*program.buffers, *program.inputs)}
    dtypes |= {name: tensor.dtype for name, tensor in program.constants}
    loops = [s.loop for s in program.steps if isinstance(s, RunLoop)]
    if not loops:
        return evaluate.run_loop
    source = generate(loops, dtypes.__getitem__, vector_bytes())
    library = built(source.text, folder)

    def run(loop: Loop, memory: Mapping[str, torch.Tensor]) -> None:
        entry = source.entries[loop.name]
        assert set(entry.buffers) == set(memory)
        pairs = zip(entry.buffers, entry.offsets, strict=True)
        addresses = [memory[name].data_ptr() + offset for name, offset in pairs]
        library.flambeau_kernel(entry.number)(*addresses)

    return run


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CASES)
def test_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    function, make = CASES[name]
    inputs = list(make())
    gm = rewrite(flambeau_prims.lower(fx.symbolic_trace(function), inputs))
    program = schedule(lower_graph(gm, inputs))
    monkeypatch.setattr(evaluate, "run_loop", kernels_of(program, tmp_path))
    results = evaluate.run_program(program, inputs)
    wanted = function(*inputs)
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    for want, got in zip(wanted, results, strict=True):
        assert want.stride() == got.stride()
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, equal_nan=True)


@pytest.mark.parametrize("through", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_way_through_an_integer_has_no_negative_zero(
    dtype: torch.dtype, through: torch.dtype
) -> None:
    x = (torch.randn(1037) * 0.9).to(dtype)
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x: (x.to(through).to(dtype),)), [x])
    (got,) = flambeau_inductor.compile(gm, [x])([x])
    expected = x.to(through).to(dtype)
    assert torch.equal(got, expected)
    assert torch.equal(torch.signbit(got), torch.signbit(expected))
