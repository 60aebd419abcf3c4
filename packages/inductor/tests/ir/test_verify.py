"""The verifier refuses what each of its rules is about."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Axis, Const, Instr, Load, Loop, Point, Reduce, Store
from flambeau_inductor.ir.program import Alloc, Buffer, FreeBuffer, Layout, Program, Ref, RunLoop
from flambeau_inductor.ir.verify import IRError, verify_loop, verify_program

f32, b8 = torch.float32, torch.bool
CPU = torch.device("cpu")
x0, r0 = Var("x0"), Var("r0")
LAYOUTS = {
    "a": Layout((4, 6), (6, 1), f32, CPU),
    "m": Layout((4, 6), (6, 1), b8, CPU),
    "out": Layout((4,), (1,), f32, CPU),
}


def loop(*body: Instr) -> Loop:
    return Loop("loop0", (Axis("x0", 4),), (Axis("r0", 6),), body)


GOOD = loop(Load("a", x0 * 6 + r0, f32), Reduce("sum", 0, f32), Store("out", x0, 1))


def test_a_good_loop_passes() -> None:
    verify_loop(GOOD, LAYOUTS)


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (loop(Load("a", x0 * 6 + r0 + 1, f32), Store("a", x0, 0)), "elements 1 to 24 of 24"),
        (loop(Load("a", r0 - 1, f32)), "elements -1 to"),
        (loop(Load("b", x0, f32)), "no buffer"),
        (loop(Load("m", x0, f32)), "holds torch.bool"),
        (loop(Load("a", Var("y"), f32)), "not an axis"),
        (loop(Load("a", Var("%0"), f32)), "not an earlier value"),
        (loop(Const(1.0, f32), Load("a", Var("%0"), f32)), "address from v0"),
        (loop(Point("neg", (0,), f32)), "not an earlier value"),
        (loop(Const(1.0, f32), Const(1, b8), Point("add", (0, 1), f32)), "different dtypes"),
        (loop(Const(1.0, f32), Point("lt", (0, 0), f32)), "is not torch.float32"),
        (loop(Const(1.0, f32), Reduce("mean", 0, f32)), "no reduction"),
        (loop(Const(1.0, f32), Load("a", x0, f32, 0)), "mask"),
        (loop(Load("a", x0 * 6 + r0, f32), Store("out", x0, 0)), "a row of element values"),
    ],
)
def test_each_rule(bad: Loop, rule: str) -> None:
    with pytest.raises(IRError, match=rule):
        verify_loop(bad, LAYOUTS)


def test_what_combines_counts_the_points_of_its_loop() -> None:
    """Also those along an axis that neither the address nor the value changes along."""
    body = (Const(1.0, f32), Store("out", x0 * 0, 0, "add", count=24))
    whole = Loop("loop0", (Axis("x0", 4), Axis("x1", 6)), (), body)
    verify_loop(whole, LAYOUTS)
    with pytest.raises(IRError, match="24 elements combined into out by 4 points"):
        verify_loop(replace(whole, x=whole.x[:1]), LAYOUTS)
    with pytest.raises(IRError, match="in a loop that reduces"):
        verify_loop(replace(whole, x=whole.x[:1], r=(Axis("r0", 6),)), LAYOUTS)


@pytest.mark.parametrize(
    ("points", "fine"), [(7, True), (8, True), (9, False), (4, False), (0, False)]
)
def test_the_last_points_of_a_loop(points: int, fine: bool) -> None:
    """Seven elements are in memory; of two times four points the last one may not be there."""
    at = Var("x0") * 4 + Var("x1")
    body = (Load("in0", at, torch.float32), Store("out", at, 0))
    loop = Loop("some", (Axis("x0", 2), Axis("x1", 4)), (), body, points=points)
    layout = Layout((points or 1,), (1,), torch.float32, torch.device("cpu"))
    if fine:
        verify_loop(loop, {"in0": layout, "out": layout})
        given, made = torch.arange(float(points)), torch.full((points,), torch.nan)
        run_loop(loop, {"in0": given, "out": made})
        assert made.equal(given)
    else:
        with pytest.raises(IRError, match="points of"):
            verify_loop(loop, {"in0": layout, "out": layout})
    if points == 7:
        with pytest.raises(IRError, match="elements 0 to 7 of 7"):
            verify_loop(replace(loop, points=None), {"in0": layout, "out": layout})


def test_lifetimes() -> None:
    buffers = tuple(Buffer(n, LAYOUTS[n]) for n in ("a", "out"))
    good = Program(
        "p", buffers[:1], (Ref("out"),), buffers, (Alloc("out"), RunLoop(GOOD), FreeBuffer("a"))
    )
    verify_program(good)
    for steps, rule in (
        ((RunLoop(GOOD), FreeBuffer("a")), "out is used in loop0, but not there"),
        ((Alloc("out"), FreeBuffer("a"), RunLoop(GOOD)), "a is used in loop0, but not there"),
        ((Alloc("out"), RunLoop(GOOD)), "never freed"),
        ((Alloc("out"), Alloc("out")), "allocated twice"),
        ((FreeBuffer("a"), FreeBuffer("a")), "a is freed, but not there"),
        ((Alloc("out"), FreeBuffer("out"), FreeBuffer("a")), "out is returned, but not there"),
    ):
        with pytest.raises(IRError, match=rule):
            verify_program(replace(good, steps=steps))
