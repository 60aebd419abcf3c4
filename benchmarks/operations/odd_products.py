"""Products in half precision whose rows are not of whole pieces of 16 bytes, on a GPU.

    bash tools/gpu.sh python -m benchmarks.operations.odd_products [--json OUT.json] [--seconds 95]

In: nothing. Out: a line for each shape and program: microseconds in eager, by Flambeau and by the
incumbent (both without autotuning), how far results are from float64's beside eager's, and the
kernels of one of Flambeau's calls. Invariant: rounds of all are interleaved and their median
counts; what fails or is wrong is said; cases that the time is too short for are named.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.systems import systems

BF16 = torch.bfloat16
SHAPES = (
    (8192, 768, 50257), (4096, 3072, 767), (4096, 767, 3072), (256, 2048, 1001),
    (8192, 1024, 32001), (8192, 768, 50264), (8, 768, 50257),
)  # fmt: skip
"""Rows, inner dimension, columns; one whose rows are of whole pieces, one of few rows."""
ROUNDS, SECONDS = 3, 0.08


def linear(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return F.linear(x, w)


def linear_and_loss(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w), y)


def linear_and_gelu(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w))


def mlp(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, w)), w.t())


PROGRAMS: tuple[tuple[Callable[..., Tensor], bool], ...] = (
    (linear_and_loss, True),
    (linear, False),
    (linear, True),
    (linear_and_loss, False),
    (mlp, True),
    (linear_and_gelu, False),
)
"""Each, and whether it is trained."""


def case(
    program: Callable[..., Tensor], shape: Sequence[int], training: bool
) -> tuple[Callable[[Any], list[Tensor]], Callable[[], list[Tensor]]]:
    """A step of a function like `program`, and that of `program` in float64."""
    rows, inner, columns = shape
    torch.manual_seed(0)
    x = torch.randn(rows, inner, device="cuda").to(BF16)
    w = (torch.randn(columns, inner, device="cuda") * inner**-0.5).to(BF16)
    y = torch.randint(columns, (rows,), device="cuda")
    with torch.no_grad():
        seed = torch.randn_like(program(x, w, y))
    if training:
        x, w = x.requires_grad_(), w.requires_grad_()

    def step(fn: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
        x_, w_, seed_ = given or (x, w, seed)
        if not training:
            with torch.no_grad():
                return [fn(x_, w_, y)]
        made = fn(x_, w_, y)
        return [made.detach(), *torch.autograd.grad(made, [x_, w_], seed_)]

    def exact() -> list[Tensor]:
        wide = (each.detach().double().requires_grad_(training) for each in (x, w, seed))
        return step(program, *wide)

    return step, exact


def error(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[float]:
    """Root mean square of the error, relative to the values'."""
    return [
        float((a.double() - b).square().mean().sqrt() / b.square().mean().sqrt().clamp(min=1e-30))
        for a, b in zip(found, wanted, strict=True)
    ]


def once(run: Callable[[], Any], times: int) -> float:
    """Microseconds of a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / times


def kernels(run: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of each kernel of one call."""
    from torch.profiler import ProfilerActivity, profile  # slow to load

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in seen.events():
        found[event.name[:70]] = found.get(event.name[:70], 0.0) + float(event.device_time)
    return found


def measured(
    program: Callable[..., Tensor], shape: Sequence[int], training: bool, names: Any
) -> Any:
    step, exact = case(program, shape, training)
    wanted = exact()
    ways, row = systems(), {"shape": list(shape), "program": program.__name__, "training": training}
    runs: dict[str, Callable[[], Any]] = {}
    for name in names:
        torch._dynamo.reset()
        began = time.perf_counter()
        try:
            fn = ways[name](lambda *given: program(*given))
            step(fn)
            found = step(fn)
            row[f"{name} first"] = time.perf_counter() - began
            row[f"{name} error"] = error(found, wanted)
            strides = [list(each.stride()) for each in found]
            if row.setdefault("strides", strides) != strides:
                row[f"{name} strides"] = strides
            del found
            runs[name] = partial(step, fn)
        except Exception as failure:  # recorded: a failing system is a result
            row[f"{name} failed"] = repr(failure)[:500]
    del wanted
    times: dict[str, list[float]] = {name: [] for name in runs}
    often = {name: max(3, int(SECONDS * 1e6 / once(run, 3))) for name, run in runs.items()}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(once(run, often[name]))
    row |= {name: median(found) for name, found in times.items()}
    if "flambeau" in runs:
        row["kernels"] = kernels(runs["flambeau"])
    return row


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--json", type=Path, default=os.environ.get("OUT"))
    arguments.add_argument("--seconds", type=float, default=95.0)
    a = arguments.parse_args()
    target = None if a.json is None else Path(a.json)
    if target is not None and (target.is_dir() or not target.suffix):
        target.mkdir(parents=True, exist_ok=True)
        target = target / "odd_products.json"
    began, rows, left = time.perf_counter(), [], []
    for program, training in PROGRAMS:
        for shape in SHAPES:
            whole, few = shape[2] % 8 == 0, shape[0] < 64
            if (whole and program is not linear_and_loss) or (
                few and (training or program is not linear)
            ):
                continue
            spent = time.perf_counter() - began
            if spent > a.seconds - 6:
                left.append([shape, program.__name__, training])
                continue
            # the incumbent compiles longest
            names = (
                ("eager", "flambeau", "incumbent")
                if spent < a.seconds * 0.6
                else ("eager", "flambeau")
            )
            rows.append(measured(program, shape, training, names))
            print({k: v for k, v in rows[-1].items() if k != "kernels"}, flush=True)
            print("   ", rows[-1].get("kernels"), flush=True)
            torch.cuda.empty_cache()
            if target is not None:
                target.write_text(json.dumps({"rows": rows, "left out": left}, indent=1))
    print("left out:", left)


if __name__ == "__main__":
    main()
