"""The step from lane to lane, against counting."""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.analysis.vectorization import lane_step
from flambeau_inductor.indexing import Expr, Var
from hypothesis import given
from hypothesis import strategies as st

x, y = Var("x0"), Var("x1")
SMALL = st.integers(0, 40)
DIVISORS = st.sampled_from([1, 2, 3, 4, 8, 12, 16, 32, 64])


@st.composite
def expressions(draw: st.DrawFn) -> Expr:
    inner = x * draw(SMALL) + y * draw(st.sampled_from([0, 1, 1, 2])) + draw(SMALL)
    outer = draw(st.sampled_from(["plain", "floor", "mod", "both"]))
    if outer == "plain":
        return inner
    divisor = draw(DIVISORS)
    if outer == "floor":
        return (inner // divisor) * draw(SMALL) + x
    if outer == "mod":
        return inner % divisor + y * draw(st.sampled_from([0, 1]))
    return (inner // divisor) * 100 + inner % divisor


def value(expr: Expr, x_at: int, y_at: int) -> int:
    result = expr.substitute({"x0": x_at, "x1": y_at})
    assert not result.vars
    return int(repr(result))


@given(expr=expressions(), width=st.sampled_from([4, 8, 16]), x_at=SMALL, block=st.integers(0, 9))
def test_step_is_what_the_lanes_do(expr: Expr, width: int, x_at: int, block: int) -> None:
    step = lane_step(expr, "x1", width)
    if step is not None:
        first = value(expr, x_at, block * width)
        lanes = [value(expr, x_at, block * width + lane) for lane in range(width)]
        assert lanes == [first + lane * step for lane in range(width)]


def test_blocks_that_never_straddle_a_row_are_regular() -> None:
    assert lane_step((x * 64 + y) // 64, "x1", 16) == 0
    assert lane_step((x * 64 + y) % 64, "x1", 16) == 1
    assert lane_step(y // 32 * 5 + y % 32, "x1", 16) == 1
    assert lane_step(y // 24 * 5 + y % 24, "x1", 16) is None
    assert lane_step(x * 3, "x1", 16) == 0
