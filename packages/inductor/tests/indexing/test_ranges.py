"""Index algebra: canonical forms, and simplification that never changes a value."""

from __future__ import annotations

from flambeau_inductor.indexing import (
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Var,
    as_expr,
    bounds,
    simplify,
    to_c,
    to_python,
)
from hypothesis import given, settings
from hypothesis import strategies as st

x, y, z = Var("x"), Var("y"), Var("z")
NAMES = ("x", "y", "z")


def exprs() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([x, y, z]), st.integers(-6, 12).map(as_expr))
    divisors = st.integers(1, 12)

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda t: t[0] + t[1]),
            st.tuples(inner, inner).map(lambda t: t[0] - t[1]),
            st.tuples(inner, st.integers(-6, 12)).map(lambda t: t[0] * t[1]),
            st.tuples(inner, divisors).map(lambda t: t[0] // t[1]),
            st.tuples(inner, divisors).map(lambda t: t[0] % t[1]),
        )

    return st.recursive(leaves, grow, max_leaves=8)


@settings(max_examples=600, deadline=None)
@given(exprs(), st.tuples(*[st.integers(1, 13)] * 3), st.data())
def test_simplify_keeps_the_value_and_bounds_hold(
    expr: Expr, sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    ranges = {n: (0, s - 1) for n, s in zip(NAMES, sizes, strict=True)}
    simple = simplify(expr, ranges)
    low, high = bounds(expr, ranges)
    slow, shigh = bounds(simple, ranges)
    for _ in range(8):
        point = {n: data.draw(st.integers(*ranges[n])) for n in NAMES}
        want = eval(to_python(expr), dict(point))
        got = simple.substitute(point)
        assert isinstance(got, IntegerConstant) and got.value == want
        again = expr.substitute(point)
        assert isinstance(again, IntegerConstant) and again.value == want
        assert low <= want <= high
        assert slow <= want <= shigh


def test_canonical_sums() -> None:
    assert x + y == y + x
    assert (x + 1) * 4 - 4 == 4 * x
    assert x - x == 0
    assert (x * 3 + y).coefficient("x") == 3
    assert (x // 2).coefficient("x") is None
    assert (x // 2).coefficient("y") == 0
    assert (x * y).coefficient("x") is None


def test_digits_of_a_reshape_come_back() -> None:
    ranges = {"x": (0, 9), "y": (0, 11), "z": (0, 63)}
    flat = x * (12 * 64) + y * 64 + z
    assert simplify(flat // 64 % 12, ranges) == y
    assert simplify(flat % 64, ranges) == z
    assert simplify(flat // (12 * 64), ranges) == x
    assert simplify((flat // 64) * 64 + flat % 64, ranges) == flat
    assert simplify(flat % 768, ranges) == y * 64 + z
    wide = {"x": (0, 767)}
    assert simplify((x // 64) * 64 + x % 64, wide) == x
    assert simplify(((x // 8) % 8) * 8 + x % 8, wide) == x % 64


def test_division_by_a_symbol_is_kept() -> None:
    n = Var("n")
    assert isinstance((x + y) // n, FloorDiv)
    assert isinstance(x % n, Mod)
    assert simplify(x % n, {"x": (0, 3), "n": (4, 100)}) == x


def test_c_text_uses_plain_division_only_when_proved() -> None:
    assert to_c(x // 3, {"x": (0, 10)}) == "(x / 3)"
    assert to_c(x // 3, {"x": (-1, 10)}) == "floordiv(x, 3)"
    assert to_c(x % 3) == "floormod(x, 3)"
    assert to_c(x * 5 + 2**40) == "(5*x + 1099511627776LL)"
