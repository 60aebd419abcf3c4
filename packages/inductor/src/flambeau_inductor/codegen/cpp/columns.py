"""Vectors of columns that are taken side by side while the rows go by.

In: the plan and how many vectors a tile has. Out: the loops around what is done for a vector of
columns, a few rows at a time. Invariant: each column takes its rows in order, whatever the tile.

Four rows at a time leave an accumulator in its register for four additions. Rows lie apart in
memory, where no processor guesses the next one: those to come are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from flambeau_inductor.codegen.cpp.plan import Plan
from flambeau_inductor.codegen.cpp.text import Text

# vectors of a tile whose accumulators are registers
MOST_UNROLLED = 4
# instructions of a loop that is short enough to be repeated
SHORT_BODY = 24
# rows that go into a column's accumulators at once
ROWS = 4


@contextmanager
def each_column(plan: Plan, text: Text, tile: int) -> Iterator[None]:
    """A loop over the vectors of a tile."""
    if tile <= MOST_UNROLLED and len(plan.loop.body) <= SHORT_BODY:
        text(f"#pragma GCC unroll {tile}")
    with text.block(f"for (int u = 0; u < {tile}; ++u)"):
        text(f"const long {plan.vector} = t + u * {plan.width};")
        yield


def refer_saved(text: Text, saved: Sequence[str]) -> None:
    """Inside `each_column`: the row values of this column under their usual names."""
    for name in saved:
        text(f"const auto {name} = {name}s[u];")


def rows_at_once(plan: Plan, tile: int) -> int:
    """How many rows go by for a vector of columns before it is the next one's turn."""
    return ROWS if tile > MOST_UNROLLED and len(plan.loop.body) <= SHORT_BODY else 1


def by_rows(
    text: Text,
    var: str,
    limits: tuple[str, str],
    rows: int,
    column: Callable[[], AbstractContextManager[None]],
    inside: Callable[[], None],
) -> None:
    """The loop over the rows `limits` of axis `var`, `rows` of them inside a loop over columns."""
    low, high = limits
    text(f"long {var}_g = {low};")
    with text.block(f"for (; {var}_g + {rows} <= {high}; {var}_g += {rows})"), column():
        text(f"#pragma GCC unroll {rows}")
        with text.block(f"for (long {var} = {var}_g; {var} < {var}_g + {rows}; ++{var})"):
            inside()
    with text.block(f"for (long {var} = {var}_g; {var} < {high}; ++{var})"), column():
        inside()
