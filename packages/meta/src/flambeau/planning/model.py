"""Model of compile time, calibrated on this machine.

In: samples: features of graphs that were compiled from scratch, and their seconds. Out: a fitted
model that predicts, and how far off it was on the samples; samples on disk. Invariant: no
coefficient is negative, so that more work is never predicted to take less time; a kernel from the
cache is no sample.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from flambeau_inductor.cache import open_values

from flambeau.events.records import GraphRecord, RecordCollector, recorders_of

KIND = "plan"
KEY = "samples"
MOST_SAMPLES = 400
STEPS = 400

#: what a machine like the one that this was written on takes, where nothing is known of this one:
#: seconds a graph, an operation, and again for those of a graph with a backward half
PRIOR = (0.6, 0.006, 0.009)


@dataclass(frozen=True)
class Sample:
    """One graph that was compiled from scratch."""

    operations: int
    training: bool
    seconds: float

    @property
    def features(self) -> tuple[float, ...]:
        """What the prediction is linear in: one, the operations, and these once more where a
        backward half comes with them."""
        return 1.0, float(self.operations), float(self.operations) if self.training else 0.0


@dataclass(frozen=True)
class CostModel:
    """Predicts seconds. `error`: the median relative error on samples that were left out of the
    fit, one at a time; None where there are too few samples, and `PRIOR` is used."""

    coefficients: tuple[float, ...]
    samples: int
    error: float | None

    def seconds(self, operations: int, training: bool) -> float:
        """The expected seconds of one graph."""
        return _product(self.coefficients, Sample(operations, training, 0.0))


def _product(coefficients: Sequence[float], of: Sample) -> float:
    return sum(a * b for a, b in zip(coefficients, of.features, strict=True))


def fit(samples: Sequence[Sample]) -> CostModel:
    """The model of some samples; with fewer than four, the prior."""
    if len(samples) < 4:
        return CostModel(PRIOR, len(samples), None)
    errors = []
    held = samples[:: max(1, len(samples) // 24)]
    for left_out in held:
        others = [sample for sample in samples if sample is not left_out]
        guess = _product(_fitted(others), left_out)
        errors.append(abs(guess - left_out.seconds) / max(left_out.seconds, 1e-6))
    return CostModel(_fitted(samples), len(samples), median(errors))


def _fitted(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Least squares of relative errors with coefficients that are not negative.

    Multiplicative updates (Lee and Seung 2001) keep every coefficient where it started: positive.
    """
    rows = [tuple(f / s.seconds for f in s.features) for s in samples if s.seconds > 0]
    size = len(PRIOR)
    gram = [[math.fsum(r[i] * r[j] for r in rows) for j in range(size)] for i in range(size)]
    aim = [math.fsum(r[i] for r in rows) for i in range(size)]
    x = list(PRIOR)
    for _ in range(STEPS):
        for i in range(size):
            below = math.fsum(gram[i][j] * x[j] for j in range(size))
            if below > 0:
                x[i] *= aim[i] / below
    return tuple(x)


def known_samples(cache_dir: str | None = None) -> list[Sample]:
    """The samples that this machine kept."""
    found: Mapping[str, Any] = open_values(cache_dir, KIND).get(KEY) or {}
    return [Sample(int(o), bool(t), float(s)) for o, t, s in found.get("rows", [])]


def keep_samples(samples: Sequence[Sample], cache_dir: str | None = None) -> bool:
    """Keep the latest samples for later processes; whether that went well."""
    rows = [[s.operations, s.training, s.seconds] for s in samples[-MOST_SAMPLES:]]
    return open_values(cache_dir, KIND).put(KEY, {"rows": rows})


LENGTHS = (2, 6, 16, 40)
WIDTH = 32


def calibrate(cache_dir: str | None = None, lengths: Sequence[int] = LENGTHS) -> CostModel:
    """Compile a few graphs of several sizes from scratch, and keep what they took.

    lengths: of the programs, in operations. About ten seconds on a laptop. The kernels are built
    in a folder that goes away.
    """
    made: list[Sample] = []
    with tempfile.TemporaryDirectory() as scratch:
        for length in lengths:
            for training in (False, True):
                made += _timed(_chain(length), training, f"{scratch}/{length}{training}")
    samples = [*known_samples(cache_dir), *made]
    keep_samples(samples, cache_dir)
    return fit(samples)


def learned() -> CostModel:
    """The model of what is on disk and of what this process has compiled so far."""
    seen = [record for _, recorder in recorders_of() for record in recorder.report().records]
    return fit([*known_samples(), *samples_of(seen)])


def samples_of(records: Iterable[GraphRecord]) -> list[Sample]:
    """The samples in records: those of graphs that the inductor compiled from scratch."""
    return [
        Sample(record.nodes, record.kind == "training", sum(record.seconds.values()))
        for record in records
        if record.kernels and not record.cache_hits and any("build" in p for p in record.seconds)
    ]


def _timed(module: torch.nn.Module, training: bool, cache_dir: str) -> list[Sample]:
    from flambeau.explaining.explain import compiled_with  # both front doors use this module

    recorder = RecordCollector()
    compiled = compiled_with(module, recorder, {"inductor.cache_dir": cache_dir})
    with torch.set_grad_enabled(training):
        compiled(torch.randn(16, WIDTH))
    return samples_of(recorder.report().records)


def _chain(length: int) -> torch.nn.Module:
    """A program of some length with what models are made of.

    Of torch's own modules: capture does not look into functions of Flambeau itself.
    """
    kinds: tuple[Callable[[], torch.nn.Module], ...] = (
        lambda: torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.GELU,
        lambda: torch.nn.LayerNorm(WIDTH),
        lambda: torch.nn.Softmax(-1),
        torch.nn.Hardswish,
    )
    return torch.nn.Sequential(*(kinds[step % len(kinds)]() for step in range(length)))
