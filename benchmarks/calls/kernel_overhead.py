"""Cost of one more kernel in a compiled graph, beyond its own work.

    python benchmarks/calls/kernel_overhead.py [--kernels 100] [--device cuda]

In: nothing. Out: microseconds a kernel: the slope between graphs of few and of many kernels of 16
elements each, which share no loop, on one thread; on a GPU what the processor takes to queue one,
without recordings. Invariant: calls of both graphs are interleaved, and the medians compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import flambeau_inductor
import flambeau_prims
import torch
from flambeau_inductor import Options
from flambeau_inductor.scheduling_limits import Limits
from torch import fx

from benchmarks.case import synchronize

FEW = 4


def chain(kernels: int, device: str) -> tuple[Callable[[list[Any]], Any], int]:
    """A graph of so many kernels, each of which reads what the one before wrote."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(kernels):
            x = torch.exp(x * 0.5).flip(0)
        return x

    x = torch.randn(16, device=device)
    low = flambeau_prims.lower(fx.symbolic_trace(run), [x])
    limits = Limits(fusion=False, chain_ops=1)
    options = Options(limits=limits, threads=1, cuda_graphs=False)
    made = flambeau_inductor.compile(low, [x], options=options)
    return made, made.report.kernels


def median_seconds(calls: int, device: str) -> dict[int, float]:
    """Seconds a call, by the number of kernels."""
    x = torch.randn(16, device=device)
    graphs = [chain(FEW, device), chain(calls, device)]
    taken: dict[int, list[float]] = {count: [] for _, count in graphs}
    for _ in range(2000):
        for made, count in graphs:
            started = time.perf_counter()
            made([x])
            taken[count].append(time.perf_counter() - started)
            synchronize(device)  # the queue is empty for the next
    return {count: statistics.median(times) for count, times in taken.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kernels", type=int, default=100)
    arguments.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    a = arguments.parse_args()
    found = median_seconds(a.kernels, a.device)
    (few, short), (many, long) = sorted(found.items())
    each = (long - short) / (many - few)
    print(f"{few} kernels {short * 1e6:.1f} us, {many} kernels {long * 1e6:.1f} us")
    print(f"one more kernel: {each * 1e6:.2f} us")


if __name__ == "__main__":
    main()
