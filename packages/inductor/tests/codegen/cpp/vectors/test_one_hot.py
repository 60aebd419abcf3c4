"""Comparisons of positions with what a row looks up: the same answers with less work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.analysis.plan import plan
from flambeau_inductor.codegen.cpp.loop_rewrites import one_hot
from flambeau_inductor.indexing import IntegerConstant as IndexConst
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Const, IndexValue, Instr, Load, Loop, Point, Reduce, Store
from tests.codegen import loops
from tests.codegen.cpp import run
from tests.poison import poisoned

ROWS, COLUMNS = 9, 70
LABELS = [0, 69, 70, -1, 35, 2**40, -(2**40), 2**31, -(2**63)]
OPS = ("eq", "ne", "lt", "le", "gt", "ge")


def gradient(swapped: bool = False) -> Loop:
    """`where(position == label, value, 0)`, and its sum over the row."""
    sides = (1, 0) if swapped else (0, 1)
    body: list[Instr] = [
        IndexValue(loops.r(), torch.int64),
        Load("label", loops.x(), torch.int64),
        Point("eq", sides, torch.bool),
        Load("value", loops.x(), torch.float32),
        Const(0.0, torch.float32),
        Point("where", (2, 3, 4), torch.float32),
        Reduce("sum", 5, torch.float32),
        Store("sums", loops.x(), 6),
        Point("sub", (5, 6), torch.float32),
        Store("out", loops.x() * COLUMNS + loops.r(), 8),
    ]
    return loops.loop("gradient", (ROWS,), (COLUMNS,), body)


def memory() -> dict[str, torch.Tensor]:
    values = torch.randn(ROWS)
    values[4] = -0.0
    return {
        "label": torch.tensor(LABELS),
        "value": values,
        "sums": poisoned(ROWS),
        "out": poisoned(ROWS * COLUMNS),
    }


@pytest.mark.parametrize("swapped", [False, True])
def test_the_sum_of_one_number_takes_no_pass(swapped: bool, tmp_path: Path) -> None:
    loop = gradient(swapped)
    changed = one_hot(loop)
    assert not any(isinstance(i, Reduce) for i in changed.body)
    assert plan(loop, 64).width == 8 and plan(changed, 64).width == 16
    given = memory()
    want, got = ({name: t.clone() for name, t in given.items()} for _ in range(2))
    run_loop(loop, want)
    run.run_loop(loop, got, tmp_path)
    for name in ("sums", "out"):
        assert torch.equal(got[name], want[name])
        assert torch.equal(got[name].signbit(), want[name].signbit())


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("first", [-3, 0, 5])
def test_every_comparison_in_32_bits(op: str, first: int, tmp_path: Path) -> None:
    body: list[Instr] = [
        Load("label", loops.x(), torch.int64),
        IndexValue(loops.x(1) + first, torch.int64),
        Point(op, (0, 1), torch.bool),
        Point(op, (1, 0), torch.bool),
        Store("left", loops.x() * COLUMNS + loops.x(1), 2),
        Store("right", loops.x() * COLUMNS + loops.x(1), 3),
    ]
    loop = loops.loop("compare", (ROWS, COLUMNS), (), body)
    kinds = [i.dtype for i in one_hot(loop).body if isinstance(i, IndexValue)]
    assert set(kinds) == {torch.int32}
    labels = torch.tensor(LABELS)
    given = {"label": labels}
    given |= {k: poisoned(ROWS * COLUMNS, dtype=torch.bool) for k in ("left", "right")}
    run.run_loop(loop, given, tmp_path)
    places = torch.arange(first, first + COLUMNS)
    compare = getattr(torch, op)
    assert torch.equal(given["left"].view(ROWS, -1), compare(labels[:, None], places))
    assert torch.equal(given["right"].view(ROWS, -1), compare(places, labels[:, None]))


def others() -> dict[str, Loop]:
    """What is no sum of one number, or nothing that a row looks up."""
    where = list(gradient().body)
    not_zero = [*where[:4], Const(1.0, torch.float32), *where[5:]]
    counted = [IndexValue(loops.r() * 2, torch.int64), *where[1:]]
    moving = [*where[:3], Load("value", loops.r(), torch.float32), *where[4:]]
    largest = [*where[:6], Reduce("max", 5, torch.float32), *where[7:]]
    bodies = {"not zero": not_zero, "steps": counted, "moving": moving, "largest": largest}
    return {k: loops.loop(k, (ROWS,), (COLUMNS,), body) for k, body in bodies.items()}


@pytest.mark.parametrize("name", others())
def test_other_reductions_stay(name: str, tmp_path: Path) -> None:
    loop = others()[name]
    assert sum(isinstance(i, Reduce) for i in one_hot(loop).body) == 1
    given = memory() | {"value": torch.randn(COLUMNS)}
    want, got = ({key: t.clone() for key, t in given.items()} for _ in range(2))
    run_loop(loop, want)
    run.run_loop(loop, got, tmp_path)
    torch.testing.assert_close(got["out"], want["out"])


def test_labels_that_move_along_the_row_stay_wide() -> None:
    body: list[Instr] = [
        IndexValue(loops.x(), torch.int64),
        Load("label", loops.x(), torch.int64),
        Point("eq", (0, 1), torch.bool),
        Store("out", loops.x(), 2),
    ]
    loop = loops.loop("moving", (COLUMNS,), (), body)
    assert one_hot(loop) is loop
    huge = IndexValue(loops.x(1) * 2**33 + IndexConst(1), torch.int64)
    far = loops.loop("far", (4, 8), (), [huge, *body[1:3], Store("out", loops.x(1), 2)])
    assert one_hot(far) is far
