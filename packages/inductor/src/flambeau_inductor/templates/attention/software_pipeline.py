"""Software pipelining of attention: the next block's scores before this block's use.

In: lines of Triton that make scores and that use them. Out: the lines of the walk. Invariant: every
block is used once, in order.

A product whose result is used in the next turn only is not waited for: the tensor units multiply
while powers of this turn's scores are taken (J. Shah et al.: FlashAttention-3, 2024). At width
64 there is no gain, and in the gradients, of which the registers are full, it is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Lines = Sequence[str]


def ahead(
    block: str,
    last: str,
    asked: Callable[[], Lines],
    used: Callable[[bool], Lines],
    hidden: Lines,
) -> list[str]:
    """Blocks of `block` (the name of a constant) to before `last`, of which there is at least one.

    `asked` makes `following`, the scores of the block at `start`; `used` computes with `scores` of
    the block at `before`, and is told whether that is the last; `hidden` masks scores of the last.
    """
    inside = [*asked(), f"before = start - {block}", *used(False), "scores = following"]
    return [
        "start = 0",
        *asked(),
        "scores = following",
        f"for start in range({block}, {last}, {block}):",
        *(f"    {line}" for line in inside),
        f"before = ({last} - 1) // {block} * {block}",
        *hidden,
        *used(True),
    ]


def register_fence(name: str, rows: str, length: int) -> str:
    """The line after which an operand is in registers: what was computed stays there, what was
    loaded is read from shared memory again for every product."""
    return f"{name} = tl.where(({rows} < {length})[:, None], {name}, 0.0)"
