"""Conditions on sizes as data: what they come to, how they read, what has no meaning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.packaging.guard_expressions import (
    UnknownOperation,
    evaluated,
    first_broken,
    holds,
    written,
)

EVEN = ["Equality", ["Mod", ["s", 0], 2], 0]
FITS = ["LessThan", ["Mul", 3, ["s", 0], ["s", 1]], 100]


@given(st.integers(1, 50), st.integers(1, 50))
def test_it_is_arithmetic(one, other):
    assert holds(EVEN, [one, other]) == (one % 2 == 0)
    assert holds(FITS, [one, other]) == (3 * one * other <= 100)
    assert evaluated(["Add", ["Mul", -1, ["s", 0]], ["FloorDiv", ["s", 1], 3]], [one, other]) == (
        other // 3 - one
    )
    half = ["Equality", ["Mul", ["Rational", 1, 2], ["s", 0]], ["s", 1]]
    assert holds(half, [one, other]) == (one == 2 * other)
    inverse = ["Equality", ["Mul", ["s", 0], ["Pow", ["s", 1], -1]], 1]
    assert holds(inverse, [one, other]) == (one == other)


def test_it_reads_as_python():
    assert written(EVEN, ["n"]) == "(n % 2) == 0"
    assert written(FITS, ["a", "b"]) == "(3 * a * b) <= 100"
    assert written(["Max", 1, ["s", 0]], ["a"]) == "max(1, a)"


def test_the_first_that_is_broken():
    assert first_broken([EVEN, FITS], [4, 5]) is None
    assert first_broken([EVEN, FITS], [40, 5]) == FITS
    assert first_broken([EVEN, FITS], [41, 5]) == EVEN
    assert not holds(["Equality", ["Mod", 4, ["s", 0]], 0], [0])  # has no value: does not hold


@pytest.mark.parametrize("tree", [["__import__", 1], ["Equality", ["exec", 1], 0]])
def test_what_has_no_meaning_is_refused(tree):
    with pytest.raises(UnknownOperation):
        holds(tree, [1])
    with pytest.raises(UnknownOperation):
        written(tree, ["a"])
