"""Checks on a GPU, in kernels: they see exactly what the check on the CPU would raise for."""

from __future__ import annotations

from math import prod

import pytest
import torch
from flambeau_inductor.indexing import Expr, Var
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Axis, Load, Loop, Reduce, Store
from flambeau_inductor.ir.program import CheckIndex, Layout, Ref
from flambeau_inductor.ir.tensors import dot, flat_strides
from flambeau_inductor.ir.verify import verify_loop
from flambeau_inductor.runtime.checks import check_index
from flambeau_inductor.schedule.bounds_checks import check_inside, check_loop

CPU = torch.device("cpu")


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("values", [[0, 4], [0, 5], [-1, 0], [-5, 4], [-6, 0], [2, 2]])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (), (1,), (1, 1), (1, 6)], ids=str)
def test_a_kernel_sees_what_the_cpu_sees(
    shape: tuple[int, ...], values: list[int], wrap: bool
) -> None:
    index = torch.tensor(values, dtype=torch.int64).repeat(3)
    index = index[-1:] if prod(shape) == 1 else index[:6]
    stride = torch.empty(shape).stride()
    layout = Layout(shape, stride, torch.int64, CPU)
    check = CheckIndex(Ref("index", layout), 5, wrap, "IndexError", "{index} is out")
    result = torch.zeros(1, dtype=torch.bool)
    loop = check_loop("check", check, layout, "fine")
    assert bool(loop.r) == any(isinstance(each, Reduce) for each in loop.body)
    run_loop(loop, {"index": index, "fine": result})
    try:
        check_index(index, -5 if wrap else 0, 5, "IndexError", "{index} is out")
        expected = True
    except IndexError:
        expected = False
    assert bool(result) == expected


def _gather(index: Expr, axes: tuple[Axis, ...]) -> Loop:
    """`out[...] = table[index[...]]`."""
    where = dot([Var(a.var) for a in axes], flat_strides(tuple(a.size for a in axes)))
    body = (Load("index", index, torch.int64), Load("table", Var("%0"), torch.float32))
    return Loop("gather", axes, (), (*body, Store("out", where, 1)))


@pytest.mark.parametrize(
    ("index", "axes", "layout"),
    [
        (Var("x0"), (Axis("x0", 6),), ((6,), (1,), 0)),
        (Var("x0"), (Axis("x0", 6), Axis("x1", 3)), ((6,), (1,), 0)),
        (Var("x1") * 3 + Var("x0"), (Axis("x0", 3), Axis("x1", 2)), ((2, 3), (3, 1), 0)),
        (Var("x0") * 3 + Var("x1"), (Axis("x0", 2), Axis("x1", 3)), ((6,), (1,), 0)),
        (Var("x0") * 2 + 1, (Axis("x0", 3),), ((3,), (2,), 1)),
    ],
)
@pytest.mark.parametrize("bad", [None, 7, -1])
def test_a_loop_that_reads_every_position_checks_them_itself(
    index: Expr, axes: tuple[Axis, ...], layout: tuple[tuple[int, ...], ...], bad: int | None
) -> None:
    shape, stride, offset = layout
    place = Layout(shape, stride, torch.int64, CPU, offset)
    check = CheckIndex(Ref("index", place), 7, False, "IndexError", "out")
    loop = check_inside(_gather(index, axes), check, place, "out of 7")
    assert loop is not None
    verify_loop(
        loop,
        {
            "index": Layout((6,), (1,), torch.int64, CPU),
            "table": Layout((7,), (1,), torch.float32, CPU),
            "out": Layout((18,), (1,), torch.float32, CPU),
        },
    )
    positions = torch.tensor([3, 6, 0, 1, 2, 5])
    if bad is not None:
        positions[offset] = bad
    memory = {"index": positions, "table": torch.randn(7), "out": torch.full((18,), -9.0)}
    if bad is not None:
        with pytest.raises(IndexError, match="out of 7"):
            run_loop(loop, memory)
        return
    run_loop(loop, memory)
    plain = {**memory, "out": torch.full((18,), -9.0)}
    run_loop(_gather(index, axes), plain)
    assert torch.equal(memory["out"], plain["out"])


@pytest.mark.parametrize(
    ("index", "axes"),
    [
        (Var("x0"), (Axis("x0", 5),)),
        (Var("x0") * 2, (Axis("x0", 3),)),
        (Var("x0") + 1, (Axis("x0", 5),)),
        (Var("x0") % 3, (Axis("x0", 6),)),
        (Var("x0") // 2, (Axis("x0", 12),)),
    ],
)
def test_a_loop_that_reads_some_positions_does_not(index: Expr, axes: tuple[Axis, ...]) -> None:
    layout = Layout((6,), (1,), torch.int64, CPU)
    check = CheckIndex(Ref("index"), 7, False, "IndexError", "out")
    assert check_inside(_gather(index, axes), check, layout, "out") is None
