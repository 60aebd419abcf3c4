"""Kernels that look at positions before they use them, under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.ir.loops import Check
from flambeau_inductor.ir.program import Extern, Ref, RunLoop
from torch import Tensor, fx
from torch.nn import functional as F

from tests.codegen.triton.run import run_loop
from tests.evaluated import scheduled

pytest.importorskip("triton", reason="triton is not installed")
ROWS, WIDTH = 9, 5
INSIDE = torch.tensor([8, 0, 3, 3, 1, 0])
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]

READS: dict[str, Operation] = {
    "index_select": lambda x, i, s: x.index_select(0, i) + s,
    "index_select_second": lambda x, i, s: x.t().index_select(1, i),
    "gather_whole": lambda x, i, s: x.gather(0, i.unsqueeze(1).expand(-1, WIDTH)),
    "nll_loss": lambda x, i, s: F.nll_loss(
        x.t().narrow(0, 0, 1).expand(len(INSIDE), ROWS), i, reduction="none"
    ),
}
SUMS: dict[str, Operation] = {
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_add_twice": lambda x, i, s: x.index_add(0, i, s, alpha=2),
}
WRITES: dict[str, Operation] = {
    "index_copy": lambda x, i, s: x.index_copy(0, i.narrow(0, 0, 3), s.narrow(0, 0, 3)),
    "scatter": lambda x, i, s: x.t().scatter(
        1, i.narrow(0, 0, 3).unsqueeze(0), s.narrow(0, 0, 3).t()
    ),
}


def operands() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(ROWS, WIDTH), INSIDE.clone(), torch.randn(len(INSIDE), WIDTH)


@pytest.mark.parametrize("name", READS | SUMS)
def test_kernels_of_a_gpu(name: str, tmp_path: Path) -> None:
    given, of = operands(), (READS | SUMS)[name]
    program = scheduled(of, given, "cuda")
    assert not any(isinstance(step, Extern) for step in program.steps)
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    assert any(isinstance(instr, Check) for loop in loops for instr in loop.body)
    memory = {buffer.name: t for buffer, t in zip(program.inputs, given, strict=True)}
    for buffer in program.buffers:
        shape, stride, _ = buffer.layout.static()
        poisoned = torch.empty_strided(shape, stride, dtype=buffer.layout.dtype).fill_(77)
        memory.setdefault(buffer.name, poisoned)
    for loop in loops:
        run_loop(loop, memory, tmp_path)
    (result,) = program.outputs
    assert isinstance(result, Ref)
    torch.testing.assert_close(memory[result.buffer], of(*given))


@pytest.mark.parametrize("name", READS | SUMS | WRITES)
@pytest.mark.parametrize("bad", [None, -1, ROWS])
def test_of_tensors_that_can_be_looked_at(name: str, bad: int | None, tmp_path: Path) -> None:
    (x, index, s), of = operands(), (READS | SUMS | WRITES)[name]
    if bad is not None:
        index[2] = bad
    gm = flambeau_prims.lower(fx.symbolic_trace(of), [x, index, s])
    options = Options(kernels="triton", cache_dir=str(tmp_path), verify=True)
    done = flambeau_inductor.compile(gm, [x, index, s], options=options)
    try:
        wanted = of(x, index, s)
    except (IndexError, RuntimeError) as refused:
        with pytest.raises(type(refused)):
            done([x, index, s])
    else:
        torch.testing.assert_close(done([x, index, s])[0], wanted)
