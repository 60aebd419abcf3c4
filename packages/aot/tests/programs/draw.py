"""Drafts of programs, drawn by hypothesis.

What comes in: nothing. What goes out: the strategy `drafts`.
Invariant: every draft builds a program; what does not apply is left out when it is built.
"""

from __future__ import annotations

from hypothesis import strategies as st

from .inputs import GRADS, LAYOUTS, SHARES, Base, Inputs
from .program import Draft
from .statements import FAMILIES

SHAPES = ((3, 3), (2, 3), (3,), (2, 3, 2), (), (1, 3), (0, 3))


def whole(least: int, most: int) -> st.SearchStrategy:
    """A number, drawn alike whatever else is in the code: hypothesis' own integers come now and
    then from the constants of the modules that are loaded."""
    return st.sampled_from(range(least, most + 1))


bases = st.builds(Base, st.sampled_from(SHAPES), st.sampled_from(LAYOUTS), st.sampled_from(GRADS))


@st.composite
def inputs(draw: st.DrawFn) -> Inputs:
    """One to three bases, one to four inputs; most inputs are a base itself."""
    chosen = tuple(draw(st.lists(bases, min_size=1, max_size=3)))
    made: list[tuple[int, str]] = []
    for index in range(draw(whole(1, 4))):
        shared = draw(whole(0, 4)) == 4
        base = draw(whole(0, len(chosen) - 1)) if shared else index % len(chosen)
        how = draw(st.sampled_from(tuple(SHARES))) if shared else "itself"
        dims = len(chosen[base].shape)
        if not dims and how in ("tail", "head", "data row", "last"):
            how = "itself"
        if (dims > 2 and how == "t") or 0 in chosen[base].shape:
            how = "itself"
        if how == "flat" and chosen[base].layout != "contiguous":
            how = "detach"
        made.append((base, how))
    return Inputs(chosen, tuple(made))


def _steps(family: str) -> st.SearchStrategy:
    operand = whole(0, 11)
    number = whole(0, 5)
    return st.tuples(
        st.just(family), st.sampled_from(tuple(FAMILIES[family])), operand, operand, number, number
    )


step = st.one_of(_steps("pure"), _steps("view"), _steps("write"), _steps("metadata"))

drafts = st.builds(
    Draft,
    inputs=inputs(),
    steps=st.lists(step, min_size=1, max_size=9).map(tuple),
    results=st.lists(whole(0, 15), min_size=1, max_size=4).map(tuple),
    extras=whole(0, 2),
    mode=st.sampled_from(("grad", "grad", "grad", "no_grad", "inference")),
    writes_after=st.lists(whole(0, 9), max_size=2).map(tuple),
    keep_failing=st.booleans(),
    partition=st.sampled_from(("min cut", "save all")),
    seed=whole(0, 255),
)
