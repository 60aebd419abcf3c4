"""Cost of an open batch size: kernels with constant sizes and with an open one, side by side.

In: nothing. Out: a line a case: medians of interleaved repeats, and their ratio.
Run: `python benchmarks/operations/open_sizes.py [threads]`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau

REPEATS = 15

mlp = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 256))
CASES: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), (512, 1000)),
    "layer norm, gelu": (lambda x: F.gelu(F.layer_norm(x, (768,))), (2048, 768)),
    "sum of columns": (lambda x: x.sum(0), (4096, 300)),
    "mlp": (mlp, (64, 256)),
    "a call": (lambda x: torch.relu(x) + 1, (4, 8)),
}


def timed(fn: Callable[[Tensor], Any], x: Tensor, count: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(count):
        fn(x)
    return (time.perf_counter() - start) / count


def main() -> None:
    """Print the table."""
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name, (fn, shape) in CASES.items():
        x = torch.randn(shape)
        constant, open_ = flambeau.compile(fn, dynamic=False), flambeau.compile(fn)
        constant(x)
        for rows in (shape[0] + 3, shape[0] + 5, shape[0]):
            open_(torch.randn(rows, *shape[1:]))
        count = max(3, int(0.02 / timed(constant, x, 3)))
        pairs = [(timed(constant, x, count), timed(open_, x, count)) for _ in range(REPEATS)]
        a, b = (statistics.median(pair[k] for pair in pairs) * 1e6 for k in (0, 1))
        print(f"{name:18s} constant {a:9.1f} us   open {b:9.1f} us   {b / a:.3f}   {b - a:+.2f} us")


if __name__ == "__main__":
    with torch.no_grad():
        main()
