"""The score card: outcomes by family, failures listed.

In: outcomes. Out: plain text, or plain data for JSON.
Invariant: every outcome is counted once, under one of: right, wrong, error, declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau_prims.__about__ import DIALECT
from flambeau_prims.conformance.check import Declaration, KitOutcome

STATUSES = ("right", "wrong", "error", "declared")


@dataclass(frozen=True)
class ScoreCard:
    """What a backend did, by family; `passed` if nothing is wrong and nothing failed."""

    backend: str
    declares: Declaration
    outcomes: tuple[KitOutcome, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return bool(self.outcomes) and not self.failures

    @property
    def failures(self) -> list[KitOutcome]:
        """What is wrong or raised, in order."""
        return [o for o in self.outcomes if o.status in ("wrong", "error")]

    def counts(self) -> dict[str, Counter[str]]:
        """How often each status occurs, by family."""
        table: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            table.setdefault(outcome.program.family, Counter())[outcome.status] += 1
        return table

    def text(self, failures: int | None = None) -> str:
        """The card; at most `failures` of them are listed (None: all)."""
        total: Counter[str] = Counter()
        rows: list[tuple[str, ...]] = [("family", "calls", *STATUSES)]
        for family, counts in sorted(self.counts().items()):
            total += counts
            calls = self._calls(family)
            rows.append((family, str(calls), *(str(counts[s]) for s in STATUSES)))
        calls = sum(_size(outcome) for outcome in self.outcomes)
        rows.append(("total", str(calls), *(str(total[s]) for s in STATUSES)))
        prims = {name for o in self.outcomes if o.status == "right" for name in o.program.prims}
        lines = [f"{self.backend}: dialect {DIALECT}, {len(prims)} primitives right somewhere, "
                 f"{self.seconds:.1f} s", "", *_aligned(rows)]  # fmt: skip
        lines += self._declared()
        shown = self.failures if failures is None else self.failures[:failures]
        if shown:
            lines += ["", "failures:"]
            lines += [f"  {o.program.name}: {o.status}: {o.message}" for o in shown]
            if len(shown) < len(self.failures):
                lines.append(f"  and {len(self.failures) - len(shown)} more")
        lines += ["", "passed" if self.passed else "failed"]
        return "\n".join(lines)

    def _calls(self, family: str) -> int:
        return sum(_size(o) for o in self.outcomes if o.program.family == family)

    def _declared(self) -> list[str]:
        reasons = Counter(o.message for o in self.outcomes if o.status == "declared")
        if not reasons:
            return []
        listed = [f"  {count:5} {reason}" for reason, count in reasons.most_common()]
        return ["", "declared as not supported by the backend:", *listed]

    def data(self) -> dict[str, Any]:
        """The card as plain data."""
        return {
            "backend": self.backend,
            "dialect": DIALECT,
            "passed": self.passed,
            "seconds": round(self.seconds, 1),
            "families": {f: {s: c[s] for s in STATUSES} for f, c in sorted(self.counts().items())},
            "declared": dict(Counter(o.message for o in self.outcomes if o.status == "declared")),
            "failures": [
                {"program": o.program.name, "status": o.status, "message": o.message}
                for o in self.failures
            ],
        }


def _size(outcome: KitOutcome) -> int:
    """Sample calls in a program; a graph counts as one."""
    return max(1, len(set(outcome.program.parts)))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))])
        for row in rows
    ]
