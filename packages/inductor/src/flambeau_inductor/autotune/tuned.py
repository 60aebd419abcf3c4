"""Choices that were measured once, kept on disk.

In: what decides the choice as text, and candidates to race where it is not known yet. Out: the
winner's name. Invariant: a kept name that is no candidate any more is measured anew, and an
outcome that the budget cut short is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flambeau_inductor.autotune.clocks import Clock
from flambeau_inductor.autotune.race import Budget, Candidate, Outcome, race


class Values(Protocol):
    """Where choices are kept between processes."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """What was put under this key; None if nothing was."""
        ...

    def put(self, key: str, value: Mapping[str, Any]) -> bool:
        """Keep a JSON value; False where it cannot be kept."""
        ...


@dataclass(slots=True)
class Tuner:
    """The races of one compile: they share a budget, and `outcomes` lists all that was run."""

    values: Values
    clock: Clock
    budget: Budget
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    known: int = 0

    def choose(
        self,
        key: str,
        names: Sequence[str],
        candidates: Callable[[], Sequence[Candidate]],
    ) -> str:
        """The name of the best of `names` for `key`; `candidates` are made only to be raced."""
        kept = self.values.get(key)
        if isinstance(kept, Mapping) and kept.get("winner") in names:
            self.known += 1
            return str(kept["winner"])
        if self.budget.left() == 0:
            return names[0]
        outcome = race(candidates(), self.clock, self.budget)
        self.outcomes[key] = outcome
        if outcome.settled:
            self.values.put(key, {"winner": outcome.winner, "seconds": dict(outcome.seconds)})
        return outcome.winner
