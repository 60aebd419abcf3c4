"""Small kernels that follow each other, in one launch, under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.module import generate_module
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.ir.program import Alloc, FreeBuffer, Program, Ref, Reuse, RunLoop
from flambeau_inductor.ir.steps import loops_of, touched
from flambeau_inductor.ir.verify import verify_program
from flambeau_inductor.templates.call_replacement import Selected, facts
from flambeau_inductor.templates.joint_launch import join_small
from flambeau_inductor.templates.selection.select import select_by_model
from torch import Tensor
from torch.nn import functional as F

from tests.evaluated import scheduled

HALF = torch.float16


def joined(of: Callable[..., Any], inputs: list[Tensor]) -> Selected:
    """The program of `of`, scheduled for a GPU that need not be there, with joint launches."""
    selected = Selected(scheduled(of, inputs, "cuda"))
    join_small(selected)
    verify_program(selected.program, selected.kernels)
    return selected


def run(selected: Selected, inputs: list[Tensor], folder: Path) -> list[Tensor]:
    """What its steps leave in its outputs, with memory as they say; what is freed is gone, and what
    is given holds NaN."""
    program = selected.program
    source = generate_module(loops_of(program), *facts(program), selected.kernels)
    path = folder / "kernels.py"
    path.write_text(source.text)
    launchers = build(path, source.kernels)
    layouts = {b.name: b.layout for b in program.buffers}
    memory = {b.name: t for b, t in zip(program.inputs, inputs, strict=True)}
    for step in program.steps:
        if isinstance(step, Alloc):
            layout = layouts[step.buffer]
            made = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype)
            memory[step.buffer] = made.fill_(torch.nan if made.is_floating_point() else -1)
        elif isinstance(step, Reuse):
            memory[step.buffer] = memory[step.old]
        elif isinstance(step, FreeBuffer):
            del memory[step.buffer]
        else:
            assert isinstance(step, RunLoop)
            launch = source.launches[step.loop.name]
            launchers[launch.kernel.name](*(memory[name] for name in launch.buffers))
    return [memory[output.buffer] for output in program.outputs if isinstance(output, Ref)]


def projections(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return tuple(F.linear(x, w) for w in (a, b, c))


def in_turn(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    made = []
    for w in (a, b, c):
        x = F.linear(x, w).narrow(1, 0, 64).relu() + x
        made.append(x)
    return tuple(made)


def of_sizes(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return tuple((w.float() * n).sum(0) for n, w in enumerate((a, b, c), 1))


def rows_and_one(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Sums of many rows beside the sum of one, which a column is divided by."""
    rows = b.float().narrow(0, 0, 5).narrow(1, 0, 5).softmax(0)
    column = c.float().select(1, 0).narrow(0, 0, 5)
    one = (column * 0.2).sum() / 5
    return rows, rows.log(), one, one / column


@pytest.mark.sweep(2)
@pytest.mark.parametrize("of", [projections, in_turn, of_sizes, rows_and_one])
def test_what_is_independent_is_one_launch(of: Callable[..., Any], tmp_path: Path) -> None:
    x = torch.randn(1, 64).to(HALF)
    weights = [(torch.randn(n, 64) / 8).to(HALF) for n in (96, 64, 160)]
    selected = joined(of, [x, *weights])
    got = run(selected, [x, *weights], tmp_path)
    for found, expected in zip(got, of(x.float(), *(w.float() for w in weights)), strict=True):
        torch.testing.assert_close(
            found.reshape(expected.shape).float(), expected, rtol=1e-2, atol=1e-2
        )
    count = len(loops_of(selected.program))
    assert count == 1 if of is projections else count > 1 if of is in_turn else count <= 3


def program_with(steps: Callable[[Program], Any], of: Callable[..., Any]) -> Program:
    weights = [((n, 64), HALF) for n in (96, 160, 32)]
    program = scheduled(of, [((1, 64), HALF), *weights], "cuda")
    made: Program = steps(program)
    return made


def test_memory_that_one_reads_is_not_written_by_another() -> None:
    """A buffer in memory that the loop before has read: the two stay apart."""

    def reused(program: Program) -> Program:
        _, second, _ = (s for s in program.steps if isinstance(s, RunLoop))
        (written,) = touched(second)[1]
        steps = [s for s in program.steps if not (isinstance(s, Alloc) and s.buffer == written)]
        at = steps.index(second)
        steps.insert(at, Reuse(written, program.inputs[1].name))
        return replace(program, steps=tuple(steps))

    plain = Selected(program_with(lambda p: p, projections))
    assert join_small(plain) == 2
    over = Selected(program_with(reused, projections))
    assert join_small(over) == 1


def test_what_keeps_the_device_busy_is_launched_alone() -> None:
    shapes = [((1, 4096), HALF), *(((n, 4096), HALF) for n in (16384, 8192, 16384))]
    selected = Selected(scheduled(projections, shapes, "cuda"))
    assert join_small(selected) == 0


def test_products_of_a_few_rows_are_one_launch(tmp_path: Path) -> None:
    x = torch.randn(3, 1024).to(HALF)
    weights = [(torch.randn(n, 1024) / 32).to(HALF) for n in (1024, 1040, 2048)]
    selected = select_by_model(scheduled(projections, [x, *weights], "cuda"))
    assert join_small(selected) == 2
    verify_program(selected.program, selected.kernels)
    got = run(selected, [x, *weights], tmp_path)
    for found, w in zip(got, weights, strict=True):
        torch.testing.assert_close(found.float(), x.float() @ w.float().t(), rtol=1e-2, atol=1e-2)


def test_what_the_processor_computes_is_no_part_of_a_launch() -> None:
    """A loop on the processor between those of a GPU, as an optimizer's counter of steps is."""

    def mixed(program: Program) -> Program:
        _, second, _ = (s for s in program.steps if isinstance(s, RunLoop))
        names = set[str]().union(*touched(second))
        host = torch.device("cpu")
        buffers = tuple(
            replace(b, layout=replace(b.layout, device=host)) if b.name in names else b
            for b in program.buffers
        )
        return replace(program, buffers=buffers)

    selected = Selected(program_with(mixed, of_sizes))
    places = [s.loop for s in selected.program.steps if isinstance(s, RunLoop)]
    assert len(places) == 3
    join_small(selected)
    devices = {b.name: b.layout.device.type for b in selected.program.buffers}
    for loop in loops_of(selected.program):
        assert len({devices[i.buffer] for i in loop.body if isinstance(i, Load | Store)}) == 1
