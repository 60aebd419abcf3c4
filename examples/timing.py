"""Times two ways of doing the same, fairly.

In: functions without arguments. Out: median milliseconds of each.
Invariant: the calls are interleaved, so that what else the machine does falls on both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def seconds(fn: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def medians(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median milliseconds by way, after one call of each that does not count."""
    for fn in ways.values():
        fn()
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, fn in ways.items():
            samples[name].append(seconds(fn) * 1e3)
    return {name: statistics.median(values) for name, values in samples.items()}
