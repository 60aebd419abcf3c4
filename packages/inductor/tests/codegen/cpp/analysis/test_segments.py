"""Loads that comparisons of positions mask: every comparison, cut and remainder of a vector."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.analysis.plan import plan, segments
from flambeau_inductor.indexing import Expr, as_expr
from flambeau_inductor.ir import evaluate
from flambeau_inductor.ir.loops import Const, IndexValue, Instr, Load, Loop, Point, Store

from tests.codegen import loops
from tests.codegen.cpp.run import run_loops
from tests.poison import poisoned

ROWS = 5
OPS = ("lt", "le", "gt", "ge", "eq", "ne")
POSITIONS: dict[str, Expr] = {
    "lane": loops.x(1),
    "from the end": as_expr(30) - loops.x(1),
    "diagonal": loops.x(1) - loops.x(0) * 3,
    "row": loops.x(0) * 9,
}
INT = torch.int64


def masked(op: str, position: Expr, bound: int, columns: int, dtype: torch.dtype) -> list[Instr]:
    """A load where a comparison holds, and another where a second one does not."""
    at = loops.x(0) * columns + loops.x(1)
    return [
        IndexValue(position, INT),
        Const(bound, INT),
        Point(op, (0, 1), torch.bool),
        Load("in", at, dtype, mask=2, other=7),
        IndexValue(loops.x(1), INT),
        Const(columns - 2, INT),
        Point("ge", (4, 5), torch.bool),
        Point("bitwise_not", (6,), torch.bool),
        Point("bitwise_and", (2, 7), torch.bool),
        Load("in", at + 3, dtype, mask=8, other=1),
        Point("where", (6, 3, 9), dtype),
        Store("", at, 10),
    ]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("columns", [3, 37, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_lane_is_read_where_its_mask_holds(
    columns: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    made: list[Loop] = []
    for op, (name, position), bound in itertools.product(OPS, POSITIONS.items(), (0, 17, 36)):
        body = masked(op, position, bound, columns, dtype)
        out = f"{op} {name} {bound}"
        stored = body[-1]
        assert isinstance(stored, Store)
        body[-1] = replace(stored, buffer=out)
        made.append(loops.loop(out, (ROWS, columns), (), body))
    given = {"in": torch.randn(ROWS * columns + 3).to(dtype)}
    given |= {loop.name: poisoned(ROWS * columns).to(dtype) for loop in made}
    want = {name: t.clone() for name, t in given.items()}
    for loop in made:
        evaluate.run_loop(loop, want)
    run_loops(made, given, tmp_path)
    for name in given:
        assert torch.equal(given[name], want[name]), name


def test_segments_have_no_masks() -> None:
    body = masked("lt", POSITIONS["lane"], 17, 64, torch.float32)
    found = segments(plan(loops.loop("pad", (ROWS, 64), (), body), 32))
    assert [(s.low, s.high) for s in found] == [("0", "17"), ("17", "62"), ("62", "64")]
    assert not any(
        isinstance(i, Load) and i.mask is not None for s in found for i in s.plan.loop.body
    )


@pytest.mark.parametrize("rows", [(), (1,), (3,), (3, 2)], ids=str)
def test_a_team_visits_each_point_of_each_segment_once(
    rows: tuple[int, ...], tmp_path: Path
) -> None:
    columns, cut = 100_003, 60_001
    position = loops.x(len(rows))
    at = position
    for axis in range(len(rows)):
        at = at + loops.x(axis) * (columns * prod(rows[axis + 1 :]))
    body: list[Instr] = [
        IndexValue(position, INT),
        Const(cut, INT),
        Point("lt", (0, 1), torch.bool),
        Load("in", at, torch.float32, mask=2, other=1),
        Load("out", at, torch.float32),
        Point("add", (3, 4), torch.float32),
        Store("out", at, 5),
    ]
    loop = loops.loop("sum", (*rows, columns), (), body)
    assert segments(plan(loop, 32))
    size = columns * prod(rows)
    given = {"in": torch.randn(size), "out": torch.randn(size)}
    want = {name: t.clone() for name, t in given.items()}
    evaluate.run_loop(loop, want)
    run_loops([loop], given, tmp_path)
    assert torch.equal(given["out"], want["out"])
