"""An inference server's day in minutes: threads call one compiled model with changing batch sizes.

    python benchmarks/programs/server.py [--seconds 300] [--threads 16] [--json file]

In: a number of threads and of seconds. Out: for eager and for Flambeau, after a warm-up over every
batch size: calls, wrong answers, latencies, stalls (calls above three times the median of their
batch size), compilations after the warm-up, and the growth of memory.
Invariant: every answer is compared with one that eager gave before the threads started.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import flambeau
from benchmarks.systems import systems

WIDTH = 256
LARGEST = 32
STALL = 3.0


class Served(nn.Module):
    """Three pre-norm blocks and a head, on sequences of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.ups = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(3))
        self.downs = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 16, width) in, (batch, 10) probabilities out."""
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            x = x + down(F.gelu(up(norm(x))))
        return self.head(x.mean(1)).softmax(-1)


@dataclass(frozen=True)
class Row:
    """What a system did. Times in milliseconds, memory in MiB."""

    system: str
    calls: int
    wrong: int
    median: float
    p99: float
    longest: float
    stalls: int
    stall_share: float
    graphs_at_start: int
    graphs_after: int
    memory_start: float
    memory_end: float


def resident() -> float:
    """MiB of memory that the process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def serve(
    system: str,
    run: Callable[[torch.Tensor], torch.Tensor],
    inputs: dict[int, torch.Tensor],
    wanted: dict[int, torch.Tensor],
    threads: int,
    seconds: float,
) -> Row:
    """Warm up, then call from many threads until the time is over."""
    with torch.no_grad():
        for size in inputs:
            run(inputs[size])
    graphs = _graphs(run)
    latencies: dict[int, list[float]] = defaultdict(list)
    wrong = [0] * threads
    lock = threading.Lock()
    end = time.monotonic() + seconds
    start_line = threading.Barrier(threads + 1)

    def worker(number: int) -> None:
        chosen = random.Random(number)
        own: list[tuple[int, float]] = []
        start_line.wait()
        with torch.no_grad():
            while time.monotonic() < end:
                size = chosen.randint(1, LARGEST)
                started = time.perf_counter()
                found = run(inputs[size])
                own.append((size, time.perf_counter() - started))
                wrong[number] += not torch.allclose(found, wanted[size], rtol=1e-4, atol=1e-6)
        with lock:
            for size, taken in own:
                latencies[size].append(taken)

    started = [threading.Thread(target=worker, args=(number,)) for number in range(threads)]
    for each in started:
        each.start()
    start_line.wait()
    time.sleep(seconds / 5)
    memory = resident()
    for each in started:
        each.join()
    everything = sorted(taken for each in latencies.values() for taken in each)
    stalls = 0
    for each in latencies.values():
        middle = statistics.median(each)
        stalls += sum(taken > STALL * middle for taken in each)
    return Row(
        system, len(everything), sum(wrong), 1e3 * statistics.median(everything),
        1e3 * everything[int(0.99 * len(everything))], 1e3 * everything[-1], stalls,
        stalls / len(everything), graphs, _graphs(run), memory, resident(),
    )  # fmt: skip


def _graphs(run: Any) -> int:
    try:
        return flambeau.report(run).graphs
    except TypeError:  # eager
        return 0


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| system | calls | wrong | median ms | p99 ms | longest ms | stalls (> 3 x median) | "
        "graphs: warm-up, after | MiB after a fifth, at the end |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        latencies = f"{row.median:.2f} | {row.p99:.2f} | {row.longest:.1f}"
        graphs = f"{row.graphs_at_start}, {row.graphs_after}"
        memory = f"{row.memory_start:.0f}, {row.memory_end:.0f}"
        stalls = f"{row.stalls} ({row.stall_share:.2%})"
        line = (row.system, row.calls, row.wrong, latencies, stalls, graphs, memory)
        lines.append("| " + " | ".join(map(str, line)) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measure and print; the exit status says whether all answers were right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Served().eval()
    inputs = {size: torch.randn(size, 16, WIDTH) for size in range(1, LARGEST + 1)}
    with torch.no_grad():
        wanted = {size: model(x) for size, x in inputs.items()}
    rows = []
    for name in ("eager", "flambeau"):
        run = systems()[name](model)
        rows.append(serve(name, run, inputs, wanted, chosen.threads, chosen.seconds / 2))
        print(rows[-1], flush=True)
    print(table(rows))
    if chosen.json:
        record = {
            "command": " ".join(sys.argv), "torch": torch.__version__,
            "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        chosen.json.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
