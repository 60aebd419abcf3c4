"""Kernels of one pass over memory, forth and back, beside a copy, eager and the incumbent.

Each case is a function of PyTorch (`kernel_cases.py`), compiled as a user compiles it.
Processes compile their shares side by side; then each case is timed alone, the systems and a copy
in turn, with runs queued ahead of the device and the level 2 cache overwritten before each. The
goal is a share of that copy's bandwidth: 95 % for what only moves bytes, 85 % for what is heavy in
exponentials.

    bash tools/gpu.sh python3 tools/gpu/single_kernels.py --json OUT.json
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from batch import Row, alone, child, send
from flambeau_inductor.tuning import machine_of, tuning_for
from kernel_cases import BYTES, CASES, Case, Operands
from torch import Tensor

import flambeau
from benchmarks.systems import SYSTEMS, systems

ROUNDS, THROWN = 12, 2
AHEAD = 60
COPY = "copy"
ROUNDING = {"bf16": 2**-9, "fp32": 2**-23}
"""Error of rounding once, to which no system is held."""
MORE = {"bf16": 3.0, "fp32": 2.0}
"""Times eager's error against float64 that is allowed."""
LEVEL = 0.98
"""Of eager's speed: two samples of one kernel differ by this much."""

Run = Callable[[], object]
Functions = dict[tuple[str, str], Callable[..., Any]]
"""By system, and by which way it is run."""
FORWARD, BACKWARD = "forward", "backward"


def fresh(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function again with code of its own, so that compilers do not take its sizes for open
    because another case has others."""
    assert isinstance(fn, types.FunctionType)
    code = fn.__code__.replace(co_name=name, co_qualname=name)
    return types.FunctionType(code, fn.__globals__, name)


def compiled(name: str, case: Case, wraps: dict[str, Callable[..., Any]]) -> tuple[Functions, Row]:
    """Each system's function, called until it has compiled what it will, and who failed."""
    ready: Functions = {}
    failed: Row = {}
    operands = case.operands()
    plain = "".join(c if c.isalnum() else "_" for c in name)
    for system, wrap in wraps.items():
        if system == "flambeau" and case.options:
            wrap = partial(flambeau.compile, options=dict(case.options))
        forward = wrap(fresh(case.fn, f"{plain}_{system}"))
        training = wrap(fresh(case.fn, f"{plain}_{system}_training"))
        try:
            for _ in range(3):
                with torch.no_grad():
                    forward(*operands)
                if case.backward is not None:
                    gradients(training, case, operands)
            ready[system, FORWARD], ready[system, BACKWARD] = forward, training
            if system == "flambeau":
                _is_compiled(forward)
                if case.backward is not None:
                    _is_compiled(training)
        except Exception as problem:  # a system that fails is a result
            failed[system] = f"{type(problem).__name__}: {problem}"[:300]
            ready.pop((system, FORWARD), None)
            ready.pop((system, BACKWARD), None)
            traceback.print_exc()
    return ready, failed


def _is_compiled(fn: Callable[..., Any]) -> None:
    """Raise where ours runs eagerly, in whole or in part."""
    said = flambeau.report(fn).to_dict()
    left = {key: said[key] for key in ("breaks", "fallbacks", "skipped", "internal_errors")}
    if not said["graphs"] or any(left.values()):
        raise RuntimeError(f"{said['graphs']} graphs; {left}")


def gradients(fn: Callable[..., Any], case: Case, operands: Operands) -> list[Tensor]:
    """One step forth and back."""
    leaves, result, given = forth(fn, case, operands)
    return list(torch.autograd.grad(result, leaves, given))


def forth(
    fn: Callable[..., Any], case: Case, operands: Operands
) -> tuple[list[Tensor], Tensor, Tensor]:
    """What gradients are taken of, the result, and the gradient that it is given."""
    made = [t.detach().requires_grad_(k in case.leaves) for k, t in enumerate(operands)]
    result = fn(*made)
    generator = torch.Generator("cuda").manual_seed(2)
    drawn = torch.randn(result.shape, generator=generator, device="cuda").bfloat16()
    given = torch.empty_like(result).copy_(drawn)  # the same numbers in every dtype and order
    return [made[k] for k in case.leaves], result, given


def errors(found: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The largest relative error of several tensors."""
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


class Turns:
    """Median seconds of several things in turn, queued ahead of the device, each after `before`,
    which is not timed, and with the level 2 cache overwritten."""

    def __init__(self) -> None:
        self._flush = torch.empty(
            tuning_for(machine_of(0)).flush_bytes, dtype=torch.uint8, device="cuda"
        )

    def medians(self, runs: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]]) -> Row:
        events: dict[str, list[list[Any]]] = {name: [] for name in runs}
        torch.cuda.synchronize()
        for _ in range(AHEAD):  # the device is kept busy while the processor gets ahead of it
            self._flush.zero_()
        for _ in range(ROUNDS):
            for name, (before, run) in runs.items():
                state = before()
                self._flush.zero_()
                pair = [torch.cuda.Event(enable_timing=True) for _ in "ab"]
                pair[0].record()
                run(state)
                pair[1].record()
                events[name].append(pair)
        torch.cuda.synchronize()
        return {
            name: statistics.median(a.elapsed_time(b) for a, b in pairs[THROWN:]) * 1e-3
            for name, pairs in events.items()
        }


def nothing() -> None:
    return None


def timed(name: str, case: Case, ready: Functions, failed: Row, turns: Turns) -> list[Row]:
    """The rows of one case: forth, and back where there is a way back."""
    dtype = name.split()[-1]
    operands = case.operands()
    double = tuple(t.double() if t.is_floating_point() else t for t in operands)
    source = operands[0].reshape(-1).view(torch.uint8)[:BYTES]
    target = torch.empty_like(source)
    ways: list[tuple[str, float, Callable[..., Any]]] = [(FORWARD, case.forward, _forward)]
    if case.backward is not None:
        ways.append((BACKWARD, case.backward, _backward))
    found = []
    for way, passes, prepare in ways:
        row: Row = {"name": name, "way": way, "goal": case.goal, "failed": failed, "error": {}}
        exact = None
        if not case.random:
            exact = prepare(case.fn, case, double, True)
        runs: dict[str, Any] = {COPY: (nothing, lambda _: target.copy_(source))}
        for system in SYSTEMS:
            fn = ready.get((system, way))
            if fn is None:
                continue
            if exact is not None:
                row["error"][system] = errors(prepare(fn, case, operands, True), exact)
            runs[system] = prepare(fn, case, operands, False)
        del exact
        seconds = turns.medians(runs)
        row["us"] = {system: s * 1e6 for system, s in seconds.items()}
        row["copy"] = 2 * source.nbytes / seconds[COPY] / 1e9
        row["gbs"] = {s: passes * BYTES / t / 1e9 for s, t in seconds.items() if s != COPY}
        row["allowed"] = MORE[dtype] * row["error"].get("eager", 0.0) + ROUNDING[dtype]
        found.append(row)
    return found


def launched(way: str, case: Case, ready: Functions) -> list[tuple[str, float]]:
    """The kernels of one run of ours, and how many microseconds each takes."""
    prepare = _forward if way == FORWARD else _backward
    before, run = prepare(ready["flambeau", way], case, case.operands(), False)
    state = before()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run(state)
        torch.cuda.synchronize()
    on_device = [e for e in profile.events() if e.device_type.name == "CUDA"]
    return [(event.name[:80], float(event.device_time)) for event in on_device]


def _forward(fn: Callable[..., Any], case: Case, operands: Operands, once: bool) -> Any:
    """The result, or how to time it."""
    if once:
        with torch.no_grad():
            return [fn(*operands)]

    def run(_: None) -> object:
        with torch.no_grad():
            return fn(*operands)

    return nothing, run


def _backward(fn: Callable[..., Any], case: Case, operands: Operands, once: bool) -> Any:
    """The gradients, or how to time them."""
    if once:
        return gradients(fn, case, operands)
    leaves, result, given = forth(fn, case, operands)
    del result
    return partial(_again, fn, leaves, operands, case), lambda result: torch.autograd.grad(
        result, leaves, given
    )


def _again(fn: Callable[..., Any], leaves: list[Tensor], operands: Operands, case: Case) -> Tensor:
    made = list(operands)
    for k, leaf in zip(case.leaves, leaves, strict=True):
        made[k] = leaf
    result: Tensor = fn(*made)
    return result


def share(names: Sequence[str], chosen: Sequence[str], lock: str, number: int) -> Row:
    """The rows of some of the cases, in this process."""
    started = time.perf_counter()
    torch.manual_seed(0)
    wraps = {system: wrap for system, wrap in systems().items() if system in chosen}
    made = {}
    for name in names:
        made[name] = compiled(name, CASES[name], wraps)
        torch.cuda.empty_cache()
    took = time.perf_counter() - started
    rows: list[Row] = []
    with alone(lock, str(number)):
        turns = Turns()
        for name in names:
            rows += timed(name, CASES[name], *made[name], turns)
            torch.cuda.empty_cache()
        del turns
        for row in rows:  # after all are timed, for the profiler stays in the process
            if below(row):
                ready, _ = made[row["name"]]
                row["kernels"] = launched(row["way"], CASES[row["name"]], ready)
                torch.cuda.empty_cache()
        torch.cuda.empty_cache()
    return {"rows": rows, "compiled in": took}


def wrong(row: Row) -> str | None:
    """Why a row is no result."""
    if "flambeau" in row["failed"]:
        return f"failed: {row['failed']['flambeau']}"
    error = row["error"].get("flambeau", 0.0)
    if not error <= row["allowed"]:
        return f"error {error:.1e}, allowed {row['allowed']:.1e}"
    return None


def below(row: Row) -> bool:
    """Whether ours is under its share of a copy, or slower than another system."""
    return "flambeau" in row["gbs"] and bool(missed(row))


def missed(row: Row) -> list[str]:
    """The goals that a row misses."""
    own, times = row["gbs"].get("flambeau"), row["us"]
    if own is None:
        return []  # that is wrong, not slow
    found = []
    if own / row["copy"] < row["goal"]:
        found.append(f"{own / row['copy']:.0%} of a copy, {row['goal']:.0%} wanted")
    if "eager" in times and times["flambeau"] * LEVEL > times["eager"]:
        found.append(f"{times['eager'] / times['flambeau']:.2f}x of eager")
    if "incumbent" in times and times["flambeau"] * LEVEL > times["incumbent"]:
        found.append(f"{times['incumbent'] / times['flambeau']:.2f}x of the incumbent")
    return found


def line(row: Row) -> str:
    """A row of the table."""
    times, own = row["us"], row["us"].get("flambeau")
    cells = [f"{row['name']} {row['way']}"]
    if own is None:
        return f"| {cells[0]} | {wrong(row)} |"
    cells += [f"{own:.0f}", f"{row['gbs']['flambeau']:.0f}"]
    cells.append(f"{row['gbs']['flambeau'] / row['copy']:.0%}")
    for system in ("eager", "incumbent"):
        cells.append(f"{times[system] / own:.2f}x" if system in times else "-")
    cells.append(" / ".join(f"{row['error'][s]:.1e}" for s in SYSTEMS if s in row["error"]) or "-")
    return "| " + " | ".join(cells) + " |"


HEAD = """| kernel | us | GB/s | of a copy | over eager | over the incumbent | error |
|---|---|---|---|---|---|---|"""


def over(rows: Sequence[Row], system: str) -> float:
    """Geometric mean of our speed over a system's; one of the two failing counts as 1.0."""
    ratios = [
        row["us"][system] / row["us"]["flambeau"] if {system, "flambeau"} <= set(row["us"]) else 1.0
        for row in rows
    ]
    return math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))


def main() -> int:
    """Run the cases; the exit status is 1 where one is wrong or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help="cases whose name has one of these")
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), help="eager is one of them")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--patience", type=float, default=70.0, help="seconds to compile")
    parser.add_argument("--timeout", type=float, default=150.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--share", type=int)
    parser.add_argument("--lock", default="")
    a = parser.parse_args()
    names = [name for name in CASES if not a.names or any(part in name for part in a.names)]
    jobs = min(a.jobs, len(names))
    if a.share is not None:
        print(json.dumps(share(names[a.share :: jobs], a.systems, a.lock, a.share)))
        return 0
    done: set[str] = set()
    shares: list[Row] = []
    with tempfile.TemporaryDirectory() as lock, ThreadPoolExecutor(jobs + 1) as pool:
        pool.submit(send, lock, [str(k) for k in range(jobs)], done, a.patience)

        def one(number: int) -> None:
            command = [sys.executable, __file__, *a.names, "--share", str(number), "--lock", lock]
            command += ["--jobs", str(jobs), "--systems", *a.systems]
            shares.append(child(command, a.timeout, TORCHINDUCTOR_COMPILE_THREADS="1"))
            done.add(str(number))

        list(pool.map(one, range(jobs)))
    rows = [row for each in shares for row in each.get("rows", ())]
    rows.sort(key=lambda row: (names.index(row["name"]), row["way"] != FORWARD))
    failed = [each["failed"] for each in shares if "failed" in each]
    print(HEAD)
    for row in rows:
        print(line(row))
    slowest = max((each.get("compiled in", 0.0) for each in shares), default=0.0)
    copies = [row["copy"] for row in rows] or [0.0]
    print(f"{len(rows)} rows, compiled in {slowest:.0f} s; copy {min(copies):.0f} to"
          f" {max(copies):.0f} GB/s; geometric mean {over(rows, 'eager'):.2f}x eager,"
          f" {over(rows, 'incumbent'):.2f}x the incumbent")  # fmt: skip
    for row in rows:
        if below(row):
            parts = ", ".join(f"{name} {us:.0f}" for name, us in row.get("kernels", ()))
            print(f"missed: {row['name']} {row['way']}: {'; '.join(missed(row))} (us: {parts})")
    bad = [f"{row['name']} {row['way']}: {why}" for row in rows if (why := wrong(row))]
    for text in [*bad, *failed]:
        print("WRONG:", text)
    if a.json is not None:
        a.json.write_text(json.dumps({"rows": rows, "failed": failed}, indent=1))
    return 1 if bad or failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
