"""Measured choices, kept on disk.

In: what decides the choice as text, and candidates to race where it is not known yet. Out: the
winner's name. Invariant: a kept name that is no candidate any more is measured anew, and an
outcome that the budget cut short is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flambeau_inductor.autotune.benchmark import (
    BenchmarkOutcome,
    Budget,
    Candidate,
    ColdTimer,
    race,
)


class ChoiceStore(Protocol):
    """Where choices are kept between processes."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """What was put under this key; None if nothing was."""
        ...

    def put(self, key: str, value: Mapping[str, Any]) -> bool:
        """Keep a JSON value; False where it cannot be kept."""
        ...


@dataclass(slots=True)
class Tuner:
    """The races of one compile: they share a budget, and `outcomes` lists all that was run; of the
    others `known` were kept from before, `shared` were so for something of the same kin, and for
    `skipped` no time was left."""

    values: ChoiceStore
    clock: ColdTimer
    budget: Budget
    outcomes: dict[str, BenchmarkOutcome] = field(default_factory=dict)
    known: int = 0
    shared: int = 0
    skipped: int = 0

    def choose(
        self,
        key: str,
        names: Sequence[str],
        candidates: Callable[[], Sequence[Candidate]],
        kin: str = "",
    ) -> str:
        """The name of the best of `names` for `key`; `candidates` are made only to be raced. The
        first of both is the default, taken without a race. With `kin`, what won a race for another
        key of the same kin is taken too."""
        kept = self.kept(key, names)
        if kept is not None:
            self.known += 1
            return kept
        kept = self.kept(kin, names) if kin else None
        if kept is not None:
            self.shared += 1
            return kept
        if not self.budget.enough:
            self.skipped += 1
            return names[0]
        with self.budget.spending():
            made = self.budget.making(candidates)
            outcome = race(made, self.clock, self.budget)
        self.outcomes[key] = outcome
        if outcome.settled:
            for each in (key, kin) if kin else (key,):
                self.values.put(each, {"winner": outcome.winner, "seconds": dict(outcome.seconds)})
        return outcome.winner

    def kept(self, key: str, names: Collection[str]) -> str | None:
        """Which of `names` an earlier race has found to be the best; None where none is known."""
        found = self.values.get(key)
        if isinstance(found, Mapping) and found.get("winner") in names:
            return str(found["winner"])
        return None

    def seconds(self, key: str) -> Mapping[str, float]:
        """What each took in the race for `key`, now or when it was kept; empty if none was run."""
        if key in self.outcomes:
            return self.outcomes[key].seconds
        found = (self.values.get(key) or {}).get("seconds")
        return found if isinstance(found, Mapping) else {}
