"""A walk over blocks that asks for the next block's scores before it uses those of this one.

In: lines of Triton that make scores and that use them. Out: the lines of the walk. Invariant: every
block is used once, in order.

A dot whose result is used in the next turn only is not waited for: the tensor units multiply while
powers of this turn's scores are taken (J. Shah et al.: FlashAttention-3, 2024). The walk has one
turn at its end of its own, and it alone may reach behind the last row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Lines = Sequence[str]


@dataclass(frozen=True, slots=True)
class Walk:
    """Blocks of `block` (the name of a constant) from `first` to before `last`, both text.

    `asked` makes `following` of the block at `start`; `early` and `used` compute with `scores` of
    the block at `before`, what does not need them first; they are told whether it may be ragged.
    `at_first` and `at_last` mask `scores` of the first and of the last block, at `before` too.
    """

    block: str
    first: str
    last: str
    asked: Callable[[], Lines]
    early: Callable[[bool], Lines]
    used: Callable[[bool], Lines]
    at_first: Lines = ()
    at_last: Lines = ()

    def lines(self) -> list[str]:
        """The walk. Where there is no block at all, one that lies behind `last` is used."""
        inside = [
            f"before = start - {self.block}",
            *self.early(False),
            *self.asked(),
            *self.used(False),
            "scores = following",
        ]
        return [
            f"start = {self.first}",
            f"before = {self.first}",
            *self.asked(),
            "scores = following",
            *self.at_first,
            f"for start in range({self.first} + {self.block}, {self.last}, {self.block}):",
            *(f"    {line}" for line in inside),
            f"before = tl.maximum({self.first}, ({self.last} - 1) // {self.block} * {self.block})",
            *self.early(True),
            *self.at_last,
            *self.used(True),
        ]


def held(names: Sequence[str], rows: str, length: int) -> list[str]:
    """Lines after which operands are in registers: what was computed stays there, what was loaded
    is read from shared memory again for every product, half as fast as the tensor units could."""
    return [f"{name} = tl.where(({rows} < {length})[:, None], {name}, 0.0)" for name in names]
