"""Races on a clock that says what the test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from flambeau_inductor.autotune import Budget, Candidate, CpuClock, Tuner, race
from flambeau_inductor.autotune.race import LEAST_ROUNDS, MOST_ROUNDS, interval


class Told:
    """Each run says how long it took."""

    def __init__(self) -> None:
        self.samples = 0

    def sample(self, run: Callable[[], object]) -> float:
        self.samples += 1
        return float(run())  # type: ignore[arg-type]


def taking(name: str, *seconds: float) -> Candidate:
    """A candidate that takes these seconds in turn."""
    calls = {"n": -1}

    def run() -> float:
        calls["n"] += 1
        return seconds[calls["n"] % len(seconds)]

    return Candidate(name, run)


def test_the_fastest_wins_and_the_race_stops_early() -> None:
    clock = Told()
    outcome = race([taking("a", 3.0, 3.1), taking("b", 1.0, 1.1)], clock, Budget(60))
    assert outcome.winner == "b" and outcome.settled
    assert outcome.samples <= 2 * (LEAST_ROUNDS + 2) < 2 * MOST_ROUNDS
    assert outcome.seconds["b"] < outcome.seconds["a"]


def test_the_first_wins_where_nothing_is_clearly_faster() -> None:
    outcome = race([taking("a", 1.0, 1.02), taking("b", 0.995, 1.015)], Told(), Budget(60))
    assert outcome.winner == "a"


def test_a_failing_candidate_is_out_and_named() -> None:
    def broken() -> None:
        raise RuntimeError("out of shared memory")

    outcome = race([Candidate("a", broken), taking("b", 1.0)], Told(), Budget(60))
    assert outcome.winner == "b" and "shared memory" in outcome.failed["a"]


def test_no_budget_no_race() -> None:
    clock = Told()
    outcome = race([taking("a", 3.0), taking("b", 1.0)], clock, Budget(0))
    assert outcome.winner == "a" and not outcome.settled and clock.samples == 0


def test_a_race_needs_a_candidate() -> None:
    with pytest.raises(ValueError, match="without candidates"):
        race([], Told(), Budget(1))


def test_the_interval_holds_the_median() -> None:
    values = [float(v) for v in range(101)]
    low, high = interval(values)
    assert low < 50 < high and high - low < 30


class Memory:
    """Values of this process."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self.held.get(key)

    def put(self, key: str, value: Mapping[str, Any]) -> bool:
        self.held[key] = value
        return True


def test_a_choice_is_measured_once_and_kept() -> None:
    values, clock = Memory(), Told()
    made: list[int] = []

    def candidates() -> list[Candidate]:
        made.append(1)
        return [taking("a", 2.0), taking("b", 1.0)]

    for _ in range(2):
        tuner = Tuner(values, clock, Budget(60))
        assert tuner.choose("mm", ["a", "b"], candidates) == "b"
    assert len(made) == 1 and tuner.known == 1
    # a name that is gone is measured anew
    other = Tuner(values, clock, Budget(60))
    assert other.choose("mm", ["a", "c"], lambda: [taking("a", 2.0), taking("c", 1.0)])
    assert other.known == 0 and len(other.outcomes) == 1


def test_what_the_budget_cut_short_is_not_kept() -> None:
    values = Memory()
    tuner = Tuner(values, Told(), Budget(0))
    assert tuner.choose("mm", ["a", "b"], list) == "a"
    assert not values.held


def test_the_cpu_clock_counts_the_run_alone() -> None:
    ran: list[int] = []
    assert CpuClock(1 << 10).sample(lambda: ran.append(1)) > 0
    assert ran == [1]
