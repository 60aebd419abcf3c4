"""Cold-cache timing.

In: a callable. Out: seconds. Invariant: a sample contains the run alone: what empties the caches
before it, and waiting for earlier work, are outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

CPU_FLUSH = 64 << 20
"""Bytes written before each run on a CPU: more than its caches hold."""
CUDA_FLUSH = 192 << 20
"""The same on a GPU: three times the level 2 cache of the largest."""
FLUSHES = 3
"""How often that is written before a run on a GPU, so that it is busy for as long as the processor
takes to queue the run, which is some 100 us for a convolution of the library."""


class ColdTimer(Protocol):
    """What a race measures with."""

    def sample(self, run: Callable[[], object]) -> float:
        """Seconds of one run."""
        ...


class CpuClock:
    """Wall-clock seconds on a CPU."""

    def __init__(self, flush: int = CPU_FLUSH) -> None:
        self._flush = torch.empty(max(1, flush), dtype=torch.uint8)

    def sample(self, run: Callable[[], object]) -> float:
        self._flush.add_(1)
        started = time.perf_counter()
        run()
        return time.perf_counter() - started


class CudaClock:
    """Seconds between two events on the current stream of a device."""

    def __init__(self, device: int, flush: int = CUDA_FLUSH) -> None:
        self._device = device
        self._flush = torch.empty(max(1, flush), dtype=torch.uint8, device=f"cuda:{device}")
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
