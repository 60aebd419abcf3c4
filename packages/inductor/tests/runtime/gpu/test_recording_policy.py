"""Verdicts about launching, from measurements that are given."""

from __future__ import annotations

from flambeau_inductor.runtime.gpu.recording_policy import MEASURED_AT_ONCE, Launching


class Measured:
    def __init__(self, *taken: float) -> None:
        self.taken = taken

    def stop(self) -> None:
        """All is queued."""

    def seconds(self) -> tuple[float, float] | None:
        return (self.taken[0], self.taken[1]) if self.taken else None


def _after(*runs: tuple[float, float]) -> bool:
    launching = Launching()
    verdict = False
    for run in runs:
        assert launching.due()
        launching.measure(Measured(*run))
        verdict = launching.dominates()
    return verdict


def test_the_shortest_times_of_each_kind_count() -> None:
    assert not _after((5.3, 19.0))
    assert _after((5.3, 19.0), (5.8, 17.0))  # three times what queueing took, by the shortest
    assert not _after((5.3, 18.0), (9.0, 18.0))  # a thread that was slow once decides nothing


def test_nothing_is_known_before_a_run_has_ended() -> None:
    launching = Launching()
    assert not launching.dominates() and launching.due()
    pending = Measured()
    launching.measure(pending)
    assert not launching.dominates()
    assert not launching.due()  # one measurement at a time
    pending.taken = (1.0, 1.0)
    assert launching.dominates()


def test_it_is_measured_ever_more_rarely() -> None:
    launching = Launching()
    measured = []
    for run in range(1, 70):
        if launching.due():
            launching.measure(Measured(1.0, 9.0))
            measured.append(run)
        assert not launching.dominates()
        assert launching.undecided is (run < MEASURED_AT_ONCE)
    assert measured == [1, 2, 3, 4, 8, 16, 32, 64]
