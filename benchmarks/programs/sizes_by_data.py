"""Programs whose sizes and numbers depend on data: eager, Flambeau, the incumbent in two settings.

    python -m benchmarks.programs.sizes_by_data [--only NAME,...] [--rounds 15] [--threads 1]

In: nothing. Out: microseconds of one call by system, at data that differ from call to call, and
how often eager's time; programs that a system fails at are named, with its error. Invariant: all
run in turns in one process at the same data, and medians count.
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

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.systems import by_data

torch.manual_seed(0)
WEIGHTS = torch.randn(4, 64, 64) * 0.1


def _experts(x: Tensor, experts: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for place, weight in enumerate(WEIGHTS):
        index = torch.where(experts == place)[0]
        out.index_add_(0, index, F.silu(x[index] @ weight))
    return out


def _segmentation(scores: Tensor, labels: Tensor) -> Tensor:
    valid = labels != 255
    kept = scores.permute(0, 2, 3, 1)[valid]
    return F.cross_entropy(kept, labels[valid], reduction="sum") / max(valid.sum().item(), 1)


def _boxes(boxes: Tensor, scores: Tensor) -> Tensor:
    keep = scores > 0.5
    boxes, order = boxes[keep], scores[keep].argsort(descending=True)
    boxes = boxes[order]
    own = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    both = (torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - low).clamp(min=0).prod(2)
    overlap = both / (own[:, None] + own[None] - both)
    return boxes[(overlap > 0.5).triu(1).sum(0) == 0]


def _messages(x: Tensor, edges: Tensor) -> Tensor:
    source, target = edges[:, edges[0] != edges[1]]
    summed = torch.zeros_like(x).index_add(0, target, torch.tanh(x[source] - x[target]))
    return (x + summed).relu()


def _nucleus(scores: Tensor, share: Tensor) -> Tensor:
    likely, tokens = scores.softmax(-1).sort(descending=True)
    keep = likely.cumsum(-1) - likely < share
    return tokens[keep] + (likely[keep] / likely[keep].sum()).argmax()


def _pooled(x: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(x.shape[1])[None] < lengths[:, None]
    return x[there].tanh().sum(0)


def _cut(x: Tensor, count: Tensor) -> Tensor:
    n = count.item()
    return (x[:n] * 2).sum() / (n + 1) + x[n:].cos().sum()


def _clipped(x: Tensor, y: Tensor) -> Tensor:
    norm = torch.cat([x, y]).norm().item()
    return x * min(1.0, 1.0 / max(norm, 1e-6))


def _means(x: Tensor, ids: Tensor) -> Tensor:
    distinct, places = ids.unique(return_inverse=True)
    total = x.new_zeros(distinct.shape[0], x.shape[1]).index_add(0, places, x)
    return total / torch.bincount(places).clamp(min=1)[:, None]


def _split(x: Tensor, classes: Tensor) -> Tensor:
    sizes = torch.bincount(classes, minlength=4).tolist()
    return torch.stack([part.sum(0) for part in x[classes.argsort()].split(sizes)])


def _written(x: Tensor, mask: Tensor) -> Tensor:
    out = torch.empty_like(x)
    out[mask] = x[mask].tanh()
    out[~mask] = x[~mask] * 3
    return out


def _regulated(x: Tensor, lengths: Tensor) -> Tensor:
    repeated = torch.repeat_interleave(x, lengths, dim=0)
    return (repeated * (torch.arange(repeated.shape[0])[:, None] + 1).float().rsqrt()).sum(0)


def _image(count: int) -> tuple[Tensor, ...]:
    labels = torch.randint(0, 4, (2, 32, 32))
    return torch.randn(2, 4, 32, 32), labels.masked_fill(torch.rand(2, 32, 32) > count / 8, 255)


def _corners(count: int) -> tuple[Tensor, ...]:
    low = torch.rand(200, 2)
    return torch.cat([low, low + torch.rand(200, 2) * 0.2], 1), torch.rand(200) + count / 16 - 0.25


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Tensor, ...]]]] = {
    "experts": (_experts, lambda n: (torch.randn(256, 64), torch.randint(0, 4, (256,)))),
    "segmentation loss": (_segmentation, _image),
    "best boxes": (_boxes, _corners),
    "messages": (_messages, lambda n: (torch.randn(100, 32), torch.randint(0, 10 * n, (2, 400)))),
    "nucleus": (_nucleus, lambda n: (torch.randn(1, 1000), torch.tensor(n / 10))),
    "pooled by lengths": (_pooled, lambda n: (torch.randn(9, 50, 32), torch.randint(1, 50, (9,)))),
    "cut by a number": (_cut, lambda n: (torch.randn(800, 32), torch.tensor(n * 90))),
    "clipped by a norm": (_clipped, lambda n: (torch.randn(64, 64) * n, torch.randn(64, 64))),
    "means by ids": (_means, lambda n: (torch.randn(500, 32), torch.randint(0, 10 * n, (500,)))),
    "split by classes": (_split, lambda n: (torch.randn(500, 32), torch.randint(0, 4, (500,)))),
    "written by a mask": (_written, lambda n: (torch.randn(500, 32), torch.rand(500) < n / 8)),
    "length regulator": (_regulated, lambda n: (torch.randn(64, 32), torch.randint(n + 1, (64,)))),
}


def seconds(fn: Callable[..., Any], given: list[tuple[Tensor, ...]], count: int) -> float:
    """Of one call."""
    start = time.perf_counter()
    for _ in range(count):
        for each in given:
            fn(*each)
    return (time.perf_counter() - start) / count / len(given)


def measured(name: str, rounds: int) -> str:
    """One line."""
    program, make = CASES[name]
    given = [make(n) for n in (5, 3, 8, 2, 6)]
    ready: dict[str, Callable[..., Any]] = {}
    failed: dict[str, str] = {}
    for system, compiled in by_data().items():
        try:
            ready[system] = compiled(program)
            for _ in range(3):
                for each in given:
                    torch.testing.assert_close(
                        ready[system](*each), program(*each), rtol=1e-3, atol=1e-4
                    )
        except Exception as error:
            ready.pop(system, None)
            failed[system] = type(error).__name__
    count = max(1, int(0.01 / seconds(program, given, 2) / len(given)))
    found: dict[str, list[float]] = {system: [] for system in ready}
    for _ in range(rounds):
        for system, fn in ready.items():
            found[system].append(seconds(fn, given, count))
    least = {system: statistics.median(times) for system, times in found.items()}
    parts = [f"{s} {t * 1e6:8.1f} us {t / least['eager']:.2f}" for s, t in least.items()]
    return f"{name:20s} " + "   ".join(parts + [f"{s}: {why}" for s, why in failed.items()])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.only.split(",") if options.only else CASES:
        print(measured(name, options.rounds), flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
