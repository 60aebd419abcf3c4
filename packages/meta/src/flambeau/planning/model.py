"""Model of compile time, from what is known of a graph beforehand.

In: samples: features of graphs that were compiled on this machine, and their seconds. Out: a fitted
model that predicts, and says how far off it was on the samples. Invariant: no coefficient is
negative, so that more work is never predicted to take less time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from flambeau_inductor.cache import open_values

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
        """What the prediction is linear in."""
        return features(self.operations, self.training)


def features(operations: int, training: bool) -> tuple[float, ...]:
    """One, the operations, and the operations once more where a backward half comes with them."""
    return 1.0, float(operations), float(operations) if training else 0.0


@dataclass(frozen=True)
class CostModel:
    """Predicts seconds. `error`: the median relative error on samples that were left out of the
    fit, one at a time; None where there are too few samples, and `PRIOR` is used."""

    coefficients: tuple[float, ...]
    samples: int
    error: float | None

    def seconds(self, operations: int, training: bool) -> float:
        """The expected seconds of one graph."""
        pairs = zip(self.coefficients, features(operations, training))
        return sum(a * b for a, b in pairs)


def fit(samples: Sequence[Sample]) -> CostModel:
    """The model of some samples; with fewer than four, the prior."""
    if len(samples) < 4:
        return CostModel(PRIOR, len(samples), None)
    errors = []
    held = samples[:: max(1, len(samples) // 24)]
    for left_out in held:
        others = [sample for sample in samples if sample is not left_out]
        guess = sum(a * b for a, b in zip(_fitted(others), left_out.features))
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
