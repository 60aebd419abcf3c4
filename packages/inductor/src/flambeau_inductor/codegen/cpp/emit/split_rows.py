"""Split reduction on CPUs: one row shared by several threads.

In: a `LoopPlan` and the accumulators of a pass. Out: the loops over the pieces. Invariant: a row is
cut in the same places whatever the number of threads, and its pieces are merged in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.emit.accumulators import TOTAL, Accumulators
from flambeau_inductor.codegen.cpp.text import SourceLines

# pieces that a split row is cut into
CHUNKS = 64

Limits = dict[str, tuple[str, str]]
"""Where the loop over an axis begins and ends, as C++, where that is not its whole size."""


@dataclass(frozen=True, slots=True)
class RowSplit:
    """The axis to cut, the length of a piece, as C++, and how many there are."""

    var: str
    length: str
    pieces: int


def cut(plan: LoopPlan) -> RowSplit | None:
    """The longest axis in pieces, each a multiple of the width; the last ones of an open axis may
    be empty. None where it is too short."""
    var = max((a.var for a in plan.loop.r), key=lambda v: plan.sizes[v])
    size = plan.sizes[var]
    unit = plan.width if var == plan.vector else 1
    length = -(-size // CHUNKS)
    length = -(-length // unit) * unit
    if length >= size:
        return None
    if plan.exact(var) is not None:
        return RowSplit(var, str(length), -(-size // length))
    piece = f"({plan.bound(var)} + {CHUNKS - 1}) / {CHUNKS}"
    return RowSplit(var, f"(({piece} + {unit - 1}) / {unit} * {unit})", CHUNKS)


def emit_pieces(
    plan: LoopPlan,
    text: SourceLines,
    accumulators: Accumulators,
    cut: RowSplit,
    team: int,
    streams: bool,
    loops: Callable[[Limits], None],
) -> None:
    """`loops` for each piece, by `team` threads at most; `streams`: it stores past the caches."""
    size, held = plan.bound(cut.var), accumulators.by_position
    for position, accumulator in held.items():
        for suffix, lane in accumulator.fields:
            text(f"{accumulator.type_of(lane)} q{position}{suffix}[{cut.pieces}];")
    text(f"#pragma omp parallel for num_threads(team({team})) schedule(static)")
    with text.block(f"for (long c = 0; c < {cut.pieces}; ++c)"):
        text(f"const long lo = c * {cut.length};")
        text(f"const long hi = lo + {cut.length} < {size} ? lo + {cut.length} : {size};")
        accumulators.declare(TOTAL)
        loops({cut.var: ("lo", "hi")})
        for position, accumulator in held.items():
            for suffix, _ in accumulator.fields:
                text(f"q{position}{suffix}[c] = {TOTAL}{position}{suffix};")
        if streams:
            text("fence();")
    accumulators.declare(TOTAL)
    if accumulators:
        with text.block(f"for (long c = 0; c < {cut.pieces}; ++c)"):
            for position, accumulator in held.items():
                other = tuple(f"q{position}{suffix}[c]" for suffix, _ in accumulator.fields)
                text(accumulator.merge(f"{TOTAL}{position}", other))
