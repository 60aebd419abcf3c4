"""Cold-cache timing.

In: a callable. Out: seconds. Invariant: a sample contains the run alone: what empties the caches
before it, and waiting for earlier work, are outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from flambeau_inductor.tuning import host_tuning, machine_of, tuning_for

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
