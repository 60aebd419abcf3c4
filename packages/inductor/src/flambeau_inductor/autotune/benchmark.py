"""Benchmark of candidates on stand-in buffers, in as few runs as distinguish them.

In: candidates, a clock, a budget of seconds; what decides a choice, as text. Out: an outcome; the
winner's name, kept on disk. Invariant: the first candidate, which a model prefers, wins unless
another was measured to be faster; a sample is the run alone, with empty caches; nothing of the
caller's is read or written; an outcome that the budget cut short is not kept.

Candidates run in turns. After each round those whose median lies above the leader's with
confidence are out, by intervals of order statistics (Conover, Practical Nonparametric Statistics,
3.2; ranks n/2 - sqrt(n) and n/2 + sqrt(n) bracket the median with about 95 %).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch

from flambeau_inductor.cache import KeptValues
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.tuning import host_tuning, machine_of, tuning_for

Made = TypeVar("Made")

LEAST_ROUNDS = 5
MOST_ROUNDS = 40
WORTH = 0.02
"""Another candidate has to be faster than the first by this share to be taken instead."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute; `run` queues or does it once. A failing one is out of the race."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class BenchmarkOutcome:
    """`seconds` are the medians of who was measured; `failed` says why others were not.

    `settled` is False where the budget ended the race: such an outcome is not kept.
    """

    winner: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    samples: int = 0
    spent: float = 0.0
    settled: bool = True


class Budget:
    """Seconds that all races of one compile may take together, by the clock `now`.

    `longest`: what making the candidates of one race is expected to take; what it took, if longer.
    """

    def __init__(
        self, seconds: float, longest: float = 0.0, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self.seconds = seconds
        self.longest = longest
        self._now = now
        self._spent = 0.0
        self._since: float | None = None

    @property
    def spent(self) -> float:
        """Seconds that are gone, those since the one who spends now began among them."""
        return self._spent + (0.0 if self._since is None else self._now() - self._since)

    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)

    @property
    def over(self) -> bool:
        return self.left() == 0

    @property
    def enough(self) -> bool:
        """Whether the candidates of another race can be made in what is left."""
        return self.left() > self.longest

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What runs inside is paid for; within another such, it is paid for once."""
        if self._since is not None:
            yield
            return
        self._since = self._now()
        try:
            yield
        finally:
            self._spent, self._since = self.spent, None

    def making(self, make: Callable[[], Made]) -> Made:
        """`make()`, of whose seconds `longest` takes notice."""
        started = self._now()
        try:
            return make()
        finally:
            self.longest = max(self.longest, self._now() - started)


def race(candidates: Sequence[Candidate], clock: ColdTimer, budget: Budget) -> BenchmarkOutcome:
    """Run the candidates against each other. Raises ValueError: there is none."""
    if not candidates:
        raise ValueError("a race without candidates")
    first, before = candidates[0].name, budget.spent
    if len(candidates) == 1:
        return BenchmarkOutcome(first)
    if budget.over:
        return BenchmarkOutcome(first, settled=False)
    times: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    with budget.spending():
        for candidate in candidates:
            if budget.over:
                break
            try:
                clock.sample(candidate.run)  # not counted: it compiles, allocates, fills caches
                times[candidate.name] = []
            except Exception as error:  # a candidate may ask too much of the machine; it is named
                failed[candidate.name] = f"{type(error).__name__}: {error}"
        settled = len(times) + len(failed) == len(candidates)
        ready = [candidate for candidate in candidates if candidate.name in times]
        for rounds in range(1, MOST_ROUNDS + 1):
            if len(ready) < 2 or not settled:
                break
            for candidate in ready:
                times[candidate.name].append(clock.sample(candidate.run))
            if rounds >= LEAST_ROUNDS:
                ceiling = min(interval(times[c.name])[1] for c in ready)
                ready = [c for c in ready if interval(times[c.name])[0] <= ceiling]
            settled = rounds == MOST_ROUNDS or not budget.over
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    samples, spent = sum(map(len, times.values())), budget.spent - before
    winner = _winner(first, [c.name for c in ready], medians)
    return BenchmarkOutcome(winner, medians, failed, samples, spent, settled)


def _winner(first: str, ready: Sequence[str], medians: Mapping[str, float]) -> str:
    left = {name: medians[name] for name in ready if name in medians}
    if not left:
        return ready[0] if ready else first
    best = min(left, key=left.__getitem__)
    if first in medians and medians[first] <= left[best] * (1 + WORTH):
        return first
    return best


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Between which two samples the median lies, with about 95 % confidence."""
    ordered = sorted(values)
    count = len(ordered)
    reach = math.sqrt(count)
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return ordered[low], ordered[high]


FLUSHES = 3
"""How often memory is written before a run on a GPU, so that it is busy while the run is queued."""


class ColdTimer(Protocol):
    """What a race measures with."""

    def sample(self, run: Callable[[], object]) -> float:
        """Seconds of one run."""
        ...


class CpuClock:
    """Wall-clock seconds on a CPU; `flush` bytes are written before each run."""

    def __init__(self, flush: int | None = None) -> None:
        size = host_tuning().flush_bytes if flush is None else flush
        self._flush = torch.empty(max(1, size), dtype=torch.uint8)

    def sample(self, run: Callable[[], object]) -> float:
        self._flush.add_(1)
        started = time.perf_counter()
        run()
        return time.perf_counter() - started


class CudaClock:
    """Seconds between two events on the current stream of a device."""

    def __init__(self, device: int) -> None:
        self._device = device
        size = tuning_for(machine_of(device)).flush_bytes
        self._flush = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
        self._events = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        ]

    def sample(self, run: Callable[[], object]) -> float:
        before, after = self._events
        with torch.cuda.device(self._device):
            for _ in range(FLUSHES):
                self._flush.zero_()
            before.record()
            run()
            after.record()
            after.synchronize()
        return float(before.elapsed_time(after)) * 1e-3


def stand_in(layout: Layout) -> torch.Tensor:
    """A tensor of this layout. Raises TypeError where a size is open."""
    shape, stride, _ = layout.static()
    span = 1 + sum(max(n - 1, 0) * s for n, s in zip(shape, stride, strict=True))
    memory = torch.empty(span, dtype=layout.dtype, device=layout.device)
    if memory.is_floating_point():
        memory.normal_()  # whole: elements of the tensor may share memory
    else:
        memory.zero_()
    return memory.as_strided(shape, stride)


@dataclass(slots=True)
class Tuner:
    """The races of one compile: they share a budget, and `outcomes` lists all that was run; of the
    others `known` were kept from before, `shared` were so for something of the same kin, and for
    `skipped` no time was left."""

    values: KeptValues
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
        if (kept := self.kept(key, names)) is not None:
            self.known += 1
            return kept
        if kin and (kept := self.kept(kin, names)) is not None:
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
