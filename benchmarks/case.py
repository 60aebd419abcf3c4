"""Measurement of one case in this process: a JSON object on the last line.

Phases: `first` times one system's first call, `steady` interleaves all systems and compares
their results with float64, `overhead` times calls of a tiny function.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.systems import SYSTEMS, systems
from benchmarks.zoo import KERNELS, LARGE, MODELS
from benchmarks.zoo.workload import Workload, widened

SEED = 1337


def build(name: str, device: str, training: bool, quick: bool) -> Workload:
    """The workload called `name`, the same in every process."""
    torch.manual_seed(SEED)
    if "/" in name:
        from benchmarks.zoo import library  # brings in the tests' sweep, which kernels do not need

        return library.workload(name, device, training)
    if name in KERNELS:
        return KERNELS[name](device, quick)
    return (MODELS | LARGE)[name](device, training, quick)


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def first(
    name: str, device: str, training: bool, quick: bool, system: str, mode: str
) -> dict[str, Any]:
    """Seconds from wrapping the function to the end of its first call, and peak memory."""
    work = build(name, device, training, quick)
    work.step(work.fn)
    synchronize(device)
    started = time.perf_counter()
    work.step(systems(mode)[system](work.fn))
    synchronize(device)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def steady(
    name: str,
    device: str,
    training: bool,
    quick: bool,
    budget: float,
    mode: str,
    chosen: Sequence[str] = SYSTEMS,
    most: int = 200,
) -> dict[str, Any]:
    """Median milliseconds by system, interleaved, and errors against float64.

    Ends after `most` rounds, or after `budget` seconds and seven rounds.
    """
    work = build(name, device, training, quick)
    exact = reference(name, device, training, quick)
    rows: dict[str, dict[str, Any]] = {}
    callables: dict[str, Callable[..., Any]] = {}
    for system, wrap in systems(mode).items():
        if system not in chosen:
            continue
        try:
            fn = wrap(work.fn)
            torch.manual_seed(SEED)
            started = time.perf_counter()
            found = work.observed(fn)
            rows[system] = {"first_s": time.perf_counter() - started, "error": rmse(found, exact)}
            for _ in range(4):  # a mode that records does so after two or three calls
                work.step(fn)
            callables[system] = fn
        except Exception as error:  # recorded: a failing system is a result
            rows[system] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            traceback.print_exc()
    times: dict[str, list[float]] = {system: [] for system in callables}
    copying = None if work.moved is None else plain_copy(work.moved, device)
    copies: list[float] = []
    started = time.perf_counter()
    while True:
        if copying is not None:
            copies.append(once(copying, copying.fn, device))
        for system, fn in callables.items():
            times[system].append(once(work, fn, device))
        rounds = min(map(len, times.values()))
        if rounds >= most or (rounds >= 7 and time.perf_counter() - started > budget):
            break
    for system, samples in times.items():
        rows[system]["ms"] = statistics.median(samples)
        if work.moved is not None:
            rows[system]["GB/s"] = work.moved / rows[system]["ms"] / 1e6
        rows[system]["peak_device_mib"] = device_peak(work, callables[system], device)
    result = {"systems": rows, "rounds": rounds, "report": flambeau_report(callables)}
    if work.moved is not None:
        result["copy GB/s"] = work.moved / statistics.median(copies) / 1e6
    if "incumbent" in callables:
        result["incumbent breaks"] = incumbent_breaks()
    return result


def plain_copy(moved: int, device: str) -> Workload:
    """A copy between two arrays that are there already, `moved` bytes read and written in all."""
    source = torch.ones(moved // 8, device=device)  # zeros may be one page, mapped many times
    target = torch.empty_like(source)
    return Workload(target.copy_, (source,), moved=moved)


def flambeau_report(callables: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """What Flambeau says of what it compiled: graphs, breaks, kernels, fallbacks."""
    if "flambeau" not in callables:
        return {}
    import flambeau

    report = flambeau.report()
    return dict(report.to_dict())


def incumbent_breaks() -> int:
    """Graph breaks that the incumbent has counted in this process."""
    import torch._dynamo

    return sum(torch._dynamo.utils.counters["graph_break"].values())


def once(work: Workload, fn: Callable[..., Any], device: str) -> float:
    """Milliseconds of one step."""
    if device == "cuda":
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        before.record()
        work.step(fn)
        work.clear()
        after.record()
        torch.cuda.synchronize()
        return float(before.elapsed_time(after))
    started = time.perf_counter()
    work.step(fn)
    work.clear()
    return (time.perf_counter() - started) * 1e3


def device_peak(work: Workload, fn: Callable[..., Any], device: str) -> float | None:
    """MiB of device memory above what is held before a step."""
    if device != "cuda":
        return host_peak(lambda: work.step(fn))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work.step(fn)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def host_peak(step: Callable[[], Any]) -> float:
    """MiB of host memory that torch's allocator hands out at once during a step."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as run:
        step()
    kineto: Any = run.profiler
    events = [e for e in kineto.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 2**20


def reference(name: str, device: str, training: bool, quick: bool) -> list[torch.Tensor] | None:
    """What a copy in float64 (or `work.exact`) computes; None where the model cannot run so."""
    work = build(name, device, training, quick)
    if work.random:
        return None
    if work.module is not None:
        work.module.to(work.exact)
    work.inputs = tuple(widened(copy.copy(value), work.exact) for value in work.inputs)
    place = "cpu" if work.exact == torch.float64 else device  # large ones stay where they are
    try:
        return [t.to(place, work.exact) for t in work.observed(work.fn)]
    except (RuntimeError, TypeError) as error:
        print(f"no float64 reference for {name}: {error}", file=sys.stderr)
        return None


def rmse(found: list[torch.Tensor], exact: list[torch.Tensor] | None) -> float | None:
    """Root of the mean squared error, relative to the reference's own size."""
    if exact is None:
        return None
    if len(found) != len(exact):
        raise RuntimeError(f"{len(found)} results where eager has {len(exact)}")
    error = total = 0.0
    for got, want in zip(found, exact, strict=True):
        difference = got.to(want.device, want.dtype) - want
        error += float(difference.square().sum(dtype=torch.float64))
        total += float(want.square().sum(dtype=torch.float64))
    return (error / total) ** 0.5 if total else error**0.5


def overhead(device: str, mode: str) -> dict[str, Any]:
    """Microseconds a call of a two-tensor function costs, without and with gradients."""
    rows: dict[str, dict[str, float]] = {}
    for label, grad in (("no_grad", False), ("requires_grad", True)):
        a = torch.randn(4, device=device, requires_grad=grad)
        b = torch.randn(4, device=device)
        wrappers = systems(mode).items()
        functions = {system: wrap(lambda x, y: x * y + x) for system, wrap in wrappers}
        best = dict.fromkeys(functions, float("inf"))
        for fn in functions.values():
            for _ in range(20):
                fn(a, b)
        for _ in range(15):
            for system, fn in functions.items():
                started = time.perf_counter()
                for _ in range(300):
                    fn(a, b)
                best[system] = min(best[system], (time.perf_counter() - started) / 300 * 1e6)
        rows[label] = best
    return {"microseconds": rows}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=["first", "steady", "overhead"])
    parser.add_argument("--name", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--system", default="flambeau", choices=SYSTEMS)
    parser.add_argument("--systems", nargs="*", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--mode", default="default")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--budget", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=200)
    a = parser.parse_args()
    if a.phase == "first":
        result = first(a.name, a.device, a.training, a.quick, a.system, a.mode)
    elif a.phase == "steady":
        result = steady(
            a.name, a.device, a.training, a.quick, a.budget, a.mode, a.systems, a.rounds
        )
    else:
        result = overhead(a.device, a.mode)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
