"""Steps of optimizers over a transformer's parameters: eager, eager's fused kernels, compiled.

    python benchmarks/operations/optimizers.py [--device cuda] [--width 768] [--layers 12]
        [--json FILE]

In: nothing. Out: milliseconds a step and times eager's speed, by optimizer and system. Invariant:
all start from the same parameters and take the same steps, interleaved; before anything is timed
the parameters after `CHECKED` steps are held against eager's.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

from benchmarks.case import synchronize
from benchmarks.systems import SYSTEMS, systems

CHECKED, WARMING, ROUNDS, STEPS = 3, 5, 9, 10
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda p, **given: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01, **given),
    "sgd": lambda p, **given: torch.optim.SGD(p, lr=1e-2, momentum=0.9, **given),
    "adagrad": lambda p, **given: torch.optim.Adagrad(p, lr=1e-2, **given),
    "rmsprop": lambda p, **given: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, **given),
}
FUSED = ("adamw", "sgd")
"""Those of which torch has kernels that take a whole step, on every device."""
Row = dict[str, Any]


def parameters(width: int, layers: int, device: str) -> list[Tensor]:
    """Those of a transformer's layers, with gradients."""
    shapes = [(3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,)]
    shapes += [(4 * width, width), (4 * width,), (width, 4 * width), (width,), (width,), (width,)]
    torch.manual_seed(1337)
    made = [torch.randn(shape, device=device).requires_grad_() for shape in shapes * layers]
    for each in made:
        each.grad = torch.randn_like(each)
    return made


def own(given: list[Tensor]) -> list[Tensor]:
    """The parameters again, with gradients of their own."""
    again = copy.deepcopy(given)
    for each, other in zip(again, given, strict=True):
        assert other.grad is not None
        each.grad = other.grad.clone()
    return again


def measure(name: str, given: list[Tensor], device: str, wanted: list[str]) -> Row:
    """A row of one optimizer."""
    made: dict[str, tuple[list[Tensor], Callable[[], object]]] = {}
    first: dict[str, float] = {}
    for system, wrap in systems().items():
        if system in wanted:
            mine = own(given)
            made[system] = mine, wrap(OPTIMIZERS[name](mine).step)
    if name in FUSED:
        mine = own(given)
        made["eager, fused"] = mine, OPTIMIZERS[name](mine, fused=True).step
    for system, (_, step) in made.items():
        started = time.perf_counter()
        step()
        synchronize(device)
        first[system] = time.perf_counter() - started
        for _ in range(CHECKED - 1):
            step()
    expected = made["eager"][0]
    errors = {
        system: max(float((a - b).detach().abs().max()) for a, b in zip(mine, expected))
        for system, (mine, _) in made.items()
    }
    taken: dict[str, list[float]] = {system: [] for system in made}
    for turn in range(WARMING + ROUNDS):
        for system, (_, step) in made.items():
            synchronize(device)
            started = time.perf_counter()
            for _ in range(STEPS):
                step()
            synchronize(device)
            if turn >= WARMING:
                taken[system].append((time.perf_counter() - started) / STEPS)
    figures = {
        system: {"ms": 1e3 * statistics.median(times), "first": first[system], "error": error}
        for (system, times), error in zip(taken.items(), errors.values(), strict=True)
    }
    return {"name": name, "systems": figures}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("optimizers", nargs="*", default=list(OPTIMIZERS))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    unknown = [name for name in a.optimizers if name not in OPTIMIZERS]
    if unknown or "eager" not in a.systems:
        parser.error(f"unknown: {unknown}; known are {', '.join(OPTIMIZERS)}; eager is needed")
    given = parameters(a.width, a.layers, a.device)
    numbers = sum(each.numel() for each in given)
    print(f"{len(given)} parameters of {numbers / 1e6:.1f} million numbers, float32")
    rows = []
    for name in a.optimizers:
        rows.append(measure(name, given, a.device, a.systems))
        figures = rows[-1]["systems"]
        eager = figures["eager"]["ms"]
        told = [
            f"{system} {each['ms']:.3f} ms ({eager / each['ms']:.2f}x, "
            f"first {each['first']:.1f} s, off by {each['error']:.0e})"
            for system, each in figures.items()
        ]
        print(f"{name:<9}" + "; ".join(told), flush=True)
    if a.json:
        a.json.write_text(json.dumps({"parameters": len(given), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
