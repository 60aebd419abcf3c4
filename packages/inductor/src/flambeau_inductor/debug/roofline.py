"""Roofline: a kernel's time against that of a plain copy.

In: a callable, a device. Out: seconds; bytes a second. Invariant: on a GPU the device's own clock
is read and its level 2 cache is overwritten before each run; on a CPU caches keep what they hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import torch

from flambeau_inductor.autotune.benchmark import CpuClock, CudaClock

RUNS = 5
CPU_SECONDS = 0.3
"""How long runs are repeated at most, beyond the first few."""
COPIED = {"cpu": 1 << 26, "cuda": 1 << 29}
"""Bytes of the copy that is timed, by kind of device: on a GPU far more than its cache holds."""


def best_seconds(run: Callable[[], object], device: torch.device, limit: float = 0.0) -> float:
    """The fastest of a few runs; of as many as fit into `limit` seconds, if those are more."""
    on_gpu = device.type == "cuda"
    clock = CudaClock(device.index or 0) if on_gpu else CpuClock(flush=0)
    run()
    best, done, ends = float("inf"), 0, time.perf_counter() + limit
    while done < RUNS or time.perf_counter() < ends:
        best = min(best, clock.sample(run))
        done += 1
    return best


def copy_rate(device: torch.device) -> float:
    """Bytes a second that a copy moves, read and written."""
    return _copy_rate(str(device), torch.get_num_threads())


@lru_cache(maxsize=8)
def _copy_rate(device: str, threads: int) -> float:
    """`threads`: of torch, as they are now; with other ones it is another figure."""
    source = torch.zeros(COPIED[torch.device(device).type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / best_seconds(lambda: target.copy_(source), source.device)
