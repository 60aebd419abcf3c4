"""Measurement of one part of ahead-of-time autograd in this process; JSON on the last line.

python benchmarks/stages/aot_case.py overhead
python benchmarks/stages/aot_case.py tracing --name gpt2_12
python benchmarks/stages/aot_case.py partition --size 10000
python benchmarks/stages/aot_case.py memory --name resnet18 --device cuda
python benchmarks/stages/aot_case.py losses --name minilm
python benchmarks/stages/aot_case.py curve --name minilm
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.case import SEED, build, synchronize
from benchmarks.systems import ahead_of_time
from benchmarks.zoo.aot_models import TRACED
from benchmarks.zoo.workload import Workload, flat

Row = dict[str, Any]


def workload(name: str, device: str, quick: bool) -> Workload:
    """A training workload, the same in every process."""
    if name in TRACED:
        torch.manual_seed(SEED)
        return TRACED[name](device, quick)
    return build(name, device, True, quick)


def overhead(device: str) -> Row:
    """Microseconds a call of what each layer's backend returns, for a function of two operators.

    Nothing of graph capture is in it: the callables are those that backends hand to capture.
    """
    rows: Row = {}
    for label in ("no grad", "grad", "grad, forward and backward"):
        a = torch.randn(4, device=device, requires_grad=label != "no grad")
        b = torch.randn(4, device=device)
        calls = {"eager": lambda x, y: (x * y + x,)}
        calls |= returned_by_backends(lambda x, y: x * y + x, (a, b))
        if label.endswith("backward"):
            calls = {name: with_backward(call) for name, call in calls.items()}
        rows[label] = interleaved(calls, (a, b), device)
    return {"microseconds": rows}


def with_backward(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call and its backward pass."""
    one = torch.ones(4)

    def both(x: torch.Tensor, y: torch.Tensor) -> Any:
        (out,) = call(x, y)
        return torch.autograd.grad(out, x, one.to(out.device))

    return both


def returned_by_backends(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """By layer, the callable that its backend returned for the graph of `fn`."""
    caught: dict[str, Any] = {}

    def around(name: str, backend: Any) -> Any:
        def catching(gm: Any, examples: Any) -> Any:
            caught[name] = backend(gm, examples)
            order = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            if len(order) != len(inputs):
                raise RuntimeError(f"{name} was given inputs {order}")
            return caught[name]

        return catching

    for wrap in ahead_of_time(around).values():
        torch.compiler.reset()
        wrap(fn)(*inputs)
    return caught


def interleaved(calls: Row, inputs: tuple[Any, ...], device: str) -> dict[str, float]:
    """The least of many means of many calls, the systems taking turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(50):
            call(*inputs)
    for _ in range(25):
        for name, call in calls.items():
            synchronize(device)
            started = time.perf_counter()
            for _ in range(400):
                call(*inputs)
            best[name] = min(best[name], (time.perf_counter() - started) / 400 * 1e6)
    return best


def tracing(name: str, device: str, quick: bool) -> Row:
    """Seconds each backend takes for the joint graph, capture left out; first and least of three.

    Each of the three is a fresh model, so that nothing of a graph is known; what a system keeps
    for the process (imports, tables) counts in the first.
    """
    spent: dict[str, list[float]] = {}

    def around(system: str, backend: Any) -> Any:
        def timing(gm: Any, examples: Any) -> Any:
            started = time.perf_counter()
            found = backend(gm, examples)
            spent[system][-1] += time.perf_counter() - started
            return found

        return timing

    peak: Row = {}
    for system, wrap in ahead_of_time(around).items():
        if system in ("eager", "incumbent default"):
            continue
        spent[system] = []
        for _ in range(3):
            torch.compiler.reset()
            work = workload(name, device, quick)
            spent[system].append(0.0)
            wrap(work.fn)(*work.inputs)
            del work
            gc.collect()
        peak[system] = spent[system]
    return {
        "seconds": {
            system: {"first": values[0], "least": min(values)} for system, values in spent.items()
        }
    }


def partition(size: int) -> Row:
    """Seconds of each pass of ours on a joint graph of about this many nodes."""
    import flambeau_aot as aot

    def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(max(1, size // 28)):
            h = torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (16,)) @ w)
            x = x + (h @ w).softmax(-1) * torch.sigmoid(x)
        return x

    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    compiled: Any = aot.aot_function(network, aot.run_as_is)
    compiled(x, w)
    (entry,) = compiled.compiled.values()
    return {
        "nodes": len(entry.joint.graph.nodes),
        "seconds": entry.report.seconds,
        "saved_bytes": entry.report.saved_bytes,
        "saved_bytes_save_all": entry.report.saved_bytes_save_all,
    }


def memory(name: str, device: str, quick: bool) -> Row:
    """By system: bytes alive between forward and backward, and the peak of a whole step."""
    rows: Row = {}
    for system, wrap in ahead_of_time().items():
        torch.compiler.reset()
        work = workload(name, device, quick)
        try:
            fn = wrap(work.fn)
            for _ in range(2):
                work.step(fn)
            rows[system] = measured(work, fn, device)
        except Exception as error:  # recorded: a failing system is a result
            rows[system] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        del work
        gc.collect()
    return {"systems": rows, "report": own_report(name, device, quick)}


def measured(work: Workload, fn: Callable[..., Any], device: str) -> Row:
    """One step: what is alive after the forward part besides results, the peak, milliseconds."""
    gc.collect()
    for parameter in work.parameters():
        parameter.grad = None
    if device == "cuda":
        saved, peak = cuda_memory(work, fn)
    else:
        saved, peak = cpu_memory(work, fn)
    times = []
    for _ in range(3):
        synchronize(device)
        started = time.perf_counter()
        work.step(fn)
        synchronize(device)
        times.append((time.perf_counter() - started) * 1e3)
    return {"saved": saved, "peak": peak, "ms": statistics.median(times)}


def cuda_memory(work: Workload, fn: Callable[..., Any]) -> tuple[int, int]:
    """From the device's allocator."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    outputs = flat(fn(*work.inputs))
    saved = torch.cuda.memory_allocated() - before - sum(t.nbytes for t in outputs)
    outputs[0].backward()
    torch.cuda.synchronize()
    return saved, torch.cuda.max_memory_allocated() - before


def cpu_memory(work: Workload, fn: Callable[..., Any]) -> tuple[int, int]:
    """From the allocator's events, as the profiler sees them; scratch inside kernels counts."""
    kept: list[torch.Tensor] = []

    def forward() -> None:
        kept.extend(flat(fn(*work.inputs)))

    alive, first = events_of(forward)
    saved = alive - sum(t.nbytes for t in kept)
    _, second = events_of(lambda: kept[0].backward())
    return saved, max(first, alive + second)


def events_of(run: Callable[[], None]) -> tuple[int, int]:
    """Bytes that a run leaves allocated, and the most it had at once."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        run()
    results = profile.profiler.kineto_results  # type: ignore[union-attr]
    found = [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]"]
    alive = peak = 0
    for _, size in sorted(found, key=lambda pair: pair[0]):
        alive += size
        peak = max(peak, alive)
    return alive, peak


def own_report(name: str, device: str, quick: bool) -> Row:
    """What ours says of the graphs of this model: bytes, peaks, work done twice."""
    import flambeau_aot
    import flambeau_capture

    reports: list[Any] = []

    def backend(gm: Any, examples: Any) -> Any:
        compiled = flambeau_aot.aot_eager(gm, examples)
        reports.append(compiled.report)
        return compiled

    work = workload(name, device, quick)
    flambeau_capture.compile(work.fn, backend=backend)(*work.inputs)
    return {
        "graphs": len(reports),
        "saved": sum(item.saved_bytes for item in reports),
        "saved_save_all": sum(item.saved_bytes_save_all for item in reports),
        "share": max((item.recomputed_share for item in reports), default=0.0),
        "held": [name for item in reports for name in item.held_inputs],
    }


def losses(name: str, device: str, quick: bool, steps: int) -> Row:
    """The loss of each of 20 steps of SGD, eager and ours, from the same weights and data."""
    rows: Row = {}
    for system, wrap in ahead_of_time().items():
        if system not in ("eager", "flambeau"):
            continue
        work = workload(name, device, quick)
        fn = wrap(work.fn)
        optimizer = torch.optim.SGD(work.parameters(), lr=1e-3)
        torch.manual_seed(SEED)
        rows[system] = []
        for _ in range(steps):
            rows[system].append(float(work.step(fn)[0].detach()))
            optimizer.step()
    pairs = list(zip(rows["eager"], rows["flambeau"], strict=True))
    worst = max(abs(one - other) / max(abs(one), 1e-6) for one, other in pairs)
    return {"worst": worst, "first": pairs[0], "last": pairs[-1], "losses": rows}


def curve(name: str, device: str, quick: bool) -> Row:
    """The points of memory for work of a model's largest graph."""
    import flambeau_aot
    import flambeau_capture

    found: list[Any] = []

    def backend(gm: Any, examples: Any) -> Any:
        found.append(flambeau_aot.aot_eager(gm, examples))
        return found[-1]

    work = workload(name, device, quick)
    flambeau_capture.compile(work.fn, backend=backend)(*work.inputs)
    largest = max(found, key=lambda item: item.report.joint_nodes)
    started = time.perf_counter()
    points = flambeau_aot.memory_curve(largest.joint)
    return {
        "seconds": time.perf_counter() - started,
        "points": [{"saved_bytes": p.saved_bytes, "share": p.share} for p in points],
        "svg": flambeau_aot.draw_curve(points, f"{name}: memory for work"),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = ["overhead", "tracing", "partition", "memory", "losses", "curve"]
    parser.add_argument("table", choices=tables)
    parser.add_argument("--name", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    a = parser.parse_args()
    results = {
        "overhead": lambda: overhead(a.device),
        "tracing": lambda: tracing(a.name, a.device, a.quick),
        "partition": lambda: partition(a.size),
        "memory": lambda: memory(a.name, a.device, a.quick),
        "losses": lambda: losses(a.name, a.device, a.quick, a.steps),
        "curve": lambda: curve(a.name, a.device, a.quick),
    }
    print(json.dumps(results[a.table]()))


if __name__ == "__main__":
    main()
