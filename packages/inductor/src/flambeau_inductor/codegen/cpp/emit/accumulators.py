"""Accumulators of one pass over a reduction axis.

In: the plan, and the reductions that the pass does. Out: the lines for all of them. Invariant:
totals are called `a<position>`, the partial sums that are merged into them `b<position>`; in a tile
of columns each has an array, `a<position>s`, with an element a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.emit.reductions import Accumulator, accumulator_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.text import SourceLines
from flambeau_inductor.ir.loops import Reduce, ValueId

TOTAL, PARTIAL = "a", "b"


class Accumulators:
    """`tile`: how many vectors of columns they are kept for, 0 where there is no tile."""

    def __init__(
        self,
        plan: LoopPlan,
        text: SourceLines,
        values: KernelVariables,
        reduces: Sequence[tuple[ValueId, Reduce]],
    ) -> None:
        self.text = text
        self.tile = 0
        self.by_position: dict[ValueId, Accumulator] = {
            position: accumulator_of(
                instr, f"{TOTAL}{position}", values.dtype(instr.arg), plan.width, plan.length
            )
            for position, instr in reduces
        }

    def __bool__(self) -> bool:
        return bool(self.by_position)

    @property
    def cascade(self) -> bool:
        """Whether some are formed of partial sums where their row is long."""
        return any(a.cascades for a in self.by_position.values())

    def growing(self, cascades: bool) -> list[tuple[Accumulator, str]]:
        """Those that the innermost loop adds to, with their names."""
        return [(a, self.name(p, cascades)) for p, a in self.by_position.items()]

    def name(self, position: ValueId, cascades: bool) -> str:
        """What an element goes into; `cascades`: partial sums are formed here."""
        partial = cascades and self.by_position[position].cascades
        return f"{PARTIAL if partial else TOTAL}{position}"

    def _called(self, prefix: str) -> Iterator[tuple[ValueId, Accumulator]]:
        for position, accumulator in self.by_position.items():
            if prefix == TOTAL or accumulator.cascades:
                yield position, accumulator

    def declare(self, prefix: str) -> None:
        """Totals, or partial sums, at their identities."""
        for position, accumulator in self._called(prefix):
            if not self.tile:
                for line in accumulator.declare(f"{prefix}{position}"):
                    self.text(line)
                continue
            for (suffix, lane), start in zip(accumulator.fields, accumulator.identity()):
                name = f"{prefix}{position}{suffix}s"
                self.text(f"{accumulator.type_of(lane)} {name}[{self.tile}];")
                self.text(
                    f"for (int u = 0; u < {self.tile}; ++u) "
                    f"{name}[u] = {accumulator.spread(start, lane)};"
                )

    def refer(self, prefix: str, text: SourceLines | None = None) -> None:
        """Inside `columns.each_column`: those of this column under their usual names."""
        for position, accumulator in self._called(prefix):
            for suffix, lane in accumulator.fields:
                name = f"{prefix}{position}{suffix}"
                (text or self.text)(f"{accumulator.type_of(lane)}& {name} = {name}s[u];")

    def merge_partial(self) -> None:
        """Take the partial sums into the totals."""
        for position, accumulator in self._called(PARTIAL):
            self.text(accumulator.merge(f"{TOTAL}{position}", (f"{PARTIAL}{position}",)))

    def name_results(self, text: SourceLines) -> list[tuple[str, str]]:
        """Inside `columns.each_column`: what the reductions of this pass give, with its types."""
        found: list[tuple[str, str]] = []
        self.refer(TOTAL, text)
        for position, accumulator in self.by_position.items():
            for line in accumulator.named(f"v{position}"):
                text(line)
            found += accumulator.results(f"v{position}")
        return found
