"""Numbers of rows that the loops along the rows compute themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Point, Reduce, Store
from flambeau_inductor.ir.program import (
    Buffer,
    BufferOwnership,
    Extern,
    Layout,
    Program,
    Ref,
    RunLoop,
)
from flambeau_inductor.ir.steps import Compute, computing, touched
from flambeau_inductor.schedule import Limits
from flambeau_inductor.schedule.gpu.rematerialize import inline_row_scalars
from torch import Tensor

from tests.codegen import loops

PARTS, ROWS, COLUMNS = 3, 4, 10
F32 = torch.float32
LIMITS = Limits(split_on=("cpu",))
NUMBERS = loops.loop(
    "numbers",
    (PARTS * ROWS,),
    (),
    [
        Load("variance", loops.x(), F32),
        Const(1e-5, F32),
        Point("add", (0, 1), F32),
        Point("rsqrt", (2,), F32),
        Store("scale", loops.x(), 3),
    ],
)
BACKWARD = loops.norm_backward(PARTS, ROWS, COLUMNS)


def _inside(
    *all_loops: Loop, kept: Sequence[str] = (), between: Sequence[Compute] = ()
) -> list[Compute]:
    first, *others = (RunLoop(loop) for loop in all_loops)
    return _rewritten([first, *between, *others], LIMITS, kept)


def _rewritten(steps: Sequence[Compute], limits: Limits, kept: Sequence[str]) -> list[Compute]:
    layout = Layout((PARTS * ROWS,), (1,), F32, torch.device("cpu"))
    names = sorted({name for step in steps for some in touched(step) for name in some})
    buffers = tuple(Buffer(name, layout) for name in names)
    owned = BufferOwnership(kept=frozenset(kept))
    program = Program("p", (), (), buffers, tuple(steps), owned=owned)
    context = PassContext(options=Options(limits=limits))
    return computing(inline_row_scalars(context, program)[0])


def _buffers() -> dict[str, Tensor]:
    torch.manual_seed(0)
    elements, rows = PARTS * ROWS * COLUMNS, PARTS * ROWS
    made = {name: torch.randn(elements) for name in ("grad", "unit", "out")}
    made |= {name: torch.randn(PARTS * COLUMNS) for name in ("weights", "biases")}
    return made | {
        "weight": torch.randn(COLUMNS), "variance": torch.rand(rows), "scale": torch.randn(rows)
    }  # fmt: skip


def test_a_row_s_scale_is_computed_where_the_row_is() -> None:
    (made,) = _inside(NUMBERS, BACKWARD)
    assert isinstance(made, RunLoop)
    assert not any(isinstance(i, Load) and i.buffer == "scale" for i in made.loop.body)
    one, two = _buffers(), _buffers()
    run_loop(made.loop, one)
    run_loop(NUMBERS, two)
    run_loop(BACKWARD, two)
    for name in ("out", "weights", "biases"):
        assert torch.equal(one[name], two[name])


def test_several_readers_compute_it() -> None:
    most = Limits().row_scalar_readers
    readers = [replace(BACKWARD, name=f"loop{k}") for k in range(most + 1)]
    assert len(_inside(NUMBERS, *readers[:-1])) == most
    assert len(_inside(NUMBERS, *readers)) == most + 2


def test_what_is_returned_stays() -> None:
    assert len(_inside(NUMBERS, BACKWARD, kept=("scale",))) == 2


def test_what_a_library_reads_or_overwrites_stays() -> None:
    reads = Extern("aten.sum.default", (Ref("scale"),), (), (), ("other",))
    assert len(_inside(NUMBERS, BACKWARD, between=(reads,))) == 3
    writes = Extern("aten.sum.default", (Ref("unit"),), (), (Ref("variance"),))
    assert len(_inside(NUMBERS, BACKWARD, between=(writes,))) == 3


def test_a_cpu_keeps_its_loops() -> None:
    steps: list[Compute] = [RunLoop(NUMBERS), RunLoop(BACKWARD)]
    assert _rewritten(steps, Limits(), ()) == steps


ELEMENTWISE: list[Instr] = [Load("scale", loops.x(), F32), Store("out", loops.x(), 0)]
DOWN: list[Instr] = [
    Load("scale", loops.r(), F32), Reduce("sum", 0, F32), Store("out", loops.x(), 1)
]  # fmt: skip


ALONG: list[Instr] = [
    Load("grad", loops.x() * COLUMNS + loops.r(), F32),
    Load("scale", loops.x(), F32),
    Point("mul", (0, 1), F32),
    Reduce("sum", 2, F32),
    Store("out", loops.x(), 3),
]


@pytest.mark.parametrize(
    ("body", "columns"), [(ELEMENTWISE, ()), (DOWN, (PARTS * ROWS,)), (ALONG, (COLUMNS,))]
)
def test_loops_that_do_not_take_rows_in_turn_read_it(
    body: list[Instr], columns: tuple[int, ...]
) -> None:
    reader = loops.loop("reader", (PARTS * ROWS,), columns, body)
    assert len(_inside(NUMBERS, reader)) == 2
