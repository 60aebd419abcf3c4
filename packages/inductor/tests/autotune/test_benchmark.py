"""Races on a clock that says what the test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from flambeau_inductor.autotune import Budget, Candidate, CpuClock, Tuner, race
from flambeau_inductor.autotune.benchmark import LEAST_ROUNDS, MOST_ROUNDS, interval


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


def test_the_first_wins_though_another_is_a_hundredth_faster_for_sure() -> None:
    outcome = race([taking("a", 1.01), taking("b", 1.0)], Told(), Budget(60))
    assert outcome.winner == "a" and outcome.settled
    outcome = race([taking("a", 1.03), taking("b", 1.0)], Told(), Budget(60))
    assert outcome.winner == "b"


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


class Passing:
    """A clock that goes on as runs and the making of candidates say."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sample(self, run: Callable[[], object]) -> float:
        seconds = float(run())  # type: ignore[arg-type]
        self.time += seconds
        return seconds

    def making(self, seconds: float, *candidates: Candidate) -> Callable[[], list[Candidate]]:
        def make() -> list[Candidate]:
            self.time += seconds
            return list(candidates)

        return make


@pytest.mark.parametrize("seconds", [0.5, 4.0, 9.9, 31.0, 200.0])
def test_races_of_a_compile_never_take_longer_than_their_budget(seconds: float) -> None:
    """Making the candidates of a race counts, and is not begun where it would not end in time."""
    clock, sample = Passing(), 0.01
    budget = Budget(seconds, 3.0, clock.now)
    tuner = Tuner(Memory(), clock, budget)
    for number in range(20):
        make = clock.making(3.0, taking("a", 2 * sample), taking("b", sample))
        assert tuner.choose(f"key {number}", ("a", "b"), make) in ("a", "b")
    assert clock.time <= seconds + 2 * sample
    assert budget.spent == pytest.approx(clock.time)
    races = len(tuner.outcomes)
    assert races + tuner.skipped == 20 and races == min(20, int(seconds / 3.18))


def test_what_cannot_be_measured_in_time_is_the_default() -> None:
    clock = Passing()
    tuner = Tuner(Memory(), clock, Budget(4.0, 5.0, clock.now))
    assert tuner.choose("key", ("default", "other"), clock.making(5.0)) == "default"
    assert clock.time == 0 and tuner.skipped == 1


def test_a_race_that_takes_longer_to_make_than_expected_is_a_lesson() -> None:
    clock = Passing()
    budget = Budget(10.0, 0.0, clock.now)
    tuner = Tuner(Memory(), clock, budget)
    for number in range(3):
        make = clock.making(6.0, taking("a", 0.02), taking("b", 0.01))
        tuner.choose(str(number), ("a", "b"), make)
    assert budget.longest == 6.0 and len(tuner.outcomes) == 1 and tuner.skipped == 2
