"""Models in bfloat16 on a GPU: eager, Flambeau and the incumbent, several compiled at a time.

Cases are processes that compile side by side and are then timed one at a time (`batch.py`).

    bash tools/gpu.sh python3 tools/gpu/models.py --jobs 8 --json OUT.json
    bash tools/gpu.sh python3 tools/gpu/models.py --models gpt2_124m_16x512 --best reduce-overhead
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from batch import Row, alone, child, send

from benchmarks.systems import BEST, SYSTEMS, systems
from benchmarks.zoo import LARGE, MODELS

Modes = tuple[str, str, str | None]
"""Flambeau's, the incumbent's, and the one that is thought the incumbent's best."""


def measure(
    name: str, training: bool, modes: Modes, lock: str, seconds: float, chosen: list[str]
) -> Row:
    """One case in this process."""
    import torch  # the parent process needs no torch
    from recordings_memory import Pools

    from benchmarks import case

    pools = Pools()
    work = case.build(name, "cuda", training, False)
    exact = case.reference(name, "cuda", training, False)
    if work.module is not None:
        work.module.bfloat16()
    work.inputs = tuple(
        v.bfloat16() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for v in work.inputs
    )
    rows: Row = {}
    ready: dict[str, Callable[..., Any]] = {}
    for system, wrap in systems(*modes).items():
        if system not in (*chosen, BEST):
            continue
        try:
            fn = wrap(work.fn)
            torch.manual_seed(case.SEED)
            started = time.perf_counter()
            found = work.observed(fn)
            rows[system] = {"first": time.perf_counter() - started}
            rows[system]["error"] = case.rmse(found, exact)
            del found
            ready[system] = fn
        except Exception as error:  # a failing system is a result
            rows[system] = {"failed": f"{type(error).__name__}: {error}"[:200]}
            traceback.print_exc()
    del exact
    with alone(lock, name):
        for fn in ready.values():
            for _ in range(4):  # a mode that records does so after two or three calls
                work.step(fn)
        times: dict[str, list[float]] = {system: [] for system in ready}
        started = time.perf_counter()
        while len(times["eager"]) < 7 or time.perf_counter() - started < seconds:
            for system, fn in ready.items():
                times[system].append(case.once(work, fn, "cuda"))
        for system, samples in times.items():
            rows[system]["ms"] = statistics.median(samples)
            rows[system]["mib"] = case.device_peak(work, ready[system], "cuda")
    report = case.flambeau_report(ready)
    kept = {k: report.get(k) for k in ("fallbacks", "externs")}
    graphs = recordings()
    if "flambeau" in ready:  # what recordings hold is there before a step, and is counted too
        rows["flambeau"]["mib"] += pools.bytes() / 2**20
    return {"systems": rows, "report": kept, "graphs": graphs}


def recordings() -> list[Row]:
    """What became of each compiled graph: how often it was replayed, or why it was not."""
    from flambeau_inductor.runtime.artifact import CompiledGraph  # the parent process needs it not

    found = []
    for graph in (each for each in gc.get_objects() if type(each) is CompiledGraph):
        own = graph.recorded
        row = {"name": graph.report.name, "kernels": graph.report.kernels}
        row["library"] = sum(graph.report.externs.values())
        row["why"] = graph.report.unrecorded
        row["replays"] = 0 if own is None else own.replays
        row["plain"] = {} if own is None else dict(own.plain)
        found.append(row)
    return found


def run(
    name: str,
    training: bool,
    modes: Modes,
    lock: str,
    seconds: float,
    timeout: float,
    chosen: list[str],
) -> Row:
    """One case in a process of its own."""
    command = [sys.executable, __file__, "--case", name, "--lock", lock]
    command += ["--mode", modes[0], "--incumbent-mode", modes[1], "--seconds", str(seconds)]
    command += ["--systems", *chosen] + ["--training"] * training
    command += ["--best", modes[2]] if modes[2] else []
    return {"name": name, "training": training} | child(command, timeout)


def line(row: Row) -> str:
    """A row of the table."""
    name = f"{row['name']} {'training' if row['training'] else 'inference'}"
    if "failed" in row:
        return f"| {name} | {row['failed']} |"
    parts = [name]
    eager = row["systems"]["eager"]
    for system in (*SYSTEMS, *[BEST] * (BEST in row["systems"])):
        own = row["systems"].get(system, {})
        if "ms" not in own:
            parts.append(str(own.get("failed", "-")).replace("|", "/")[:80])
            continue
        error = own["error"]
        parts.append(
            f"{own['ms']:.3f} ms {eager['ms'] / own['ms']:.2f}x {own['mib']:.0f} MiB"
            f" {own['first']:.1f} s" + ("" if error is None else f" {error:.1e}")
        )
    return "| " + " | ".join(parts) + " |"


def means(rows: list[Row]) -> dict[str, float]:
    """Geometric mean of the speedup over eager, failures counted as 1.0."""
    found = {}
    with_best = any(BEST in row.get("systems", {}) for row in rows)
    for system in (*SYSTEMS, *[BEST] * with_best):
        ratios = []
        for row in rows:
            kept = row.get("systems", {})
            eager, own = kept.get("eager", {}).get("ms"), kept.get(system, {}).get("ms")
            ratios.append(eager / own if eager and own else 1.0)
        found[system] = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    return found


def missed(row: Row, modes: Modes) -> list[str]:
    """The goals that a case misses. Peaks are compared where the incumbent is in its default mode:
    what its recordings hold is not counted by the allocator."""
    name = f"{row['name']} {'training' if row['training'] else 'inference'}"
    kept = row.get("systems", {})
    eager, own, other, best = (kept.get(s, {}) for s in ("eager", "flambeau", "incumbent", BEST))
    if "ms" not in own:
        return [f"{name}: {row.get('failed') or own.get('failed') or 'no result'}"]
    found = []
    for graph in row.get("graphs", ()):
        if not graph["replays"]:
            why = graph["why"] or ", ".join(graph["plain"])
            found.append(f"{name}: {graph['name']} is launched kernel by kernel: {why}")
    if "ms" in eager and own["ms"] > eager["ms"]:
        found.append(f"{name}: slower than eager by {own['ms'] / eager['ms'] - 1:.0%}")
    if modes[0] != modes[1] and "ms" in other and own["ms"] > 1.01 * other["ms"]:
        found.append(f"{name}: behind {modes[1]} by {own['ms'] / other['ms'] - 1:.0%}")
    if "ms" in best and own["ms"] > 1.01 * best["ms"]:
        found.append(f"{name}: behind {modes[2]} by {own['ms'] / best['ms'] - 1:.0%}")
    if modes[1] == "default" and own["mib"] > 1.02 * other.get("mib", math.inf) + 1:
        found.append(f"{name}: peak {own['mib']:.0f} MiB, the incumbent's {other['mib']:.0f}")
    if own.get("error") and eager.get("error") and own["error"] > 3 * eager["error"] + 1e-6:
        found.append(f"{name}: error {own['error']:.1e}, eager's {eager['error']:.1e}")
    return found


def main() -> int:
    """Run the cases; the exit status is 1 where Flambeau fails on one."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [*MODELS, *LARGE]
    parser.add_argument("--models", nargs="*", default=list(MODELS), metavar="NAME", choices=known)
    parser.add_argument("--modes", nargs="*", default=["inference", "training"])
    parser.add_argument("--mode", default="default")
    parser.add_argument("--incumbent-mode", help="default: the same; its own peak is not counted")
    parser.add_argument("--best", help="a mode of the incumbent's to measure besides")
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), help="eager is one of them")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--patience", type=float, default=110.0, help="seconds to compile a batch")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--timeout", type=float, default=180.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--lock", default="")
    a = parser.parse_args()
    kinds = (a.mode, a.incumbent_mode or a.mode, a.best)
    if a.case:
        print(json.dumps(measure(a.case, a.training, kinds, a.lock, a.seconds, a.systems)))
        return 0
    rows: list[Row] = []
    batches = [
        (a.models[at : at + a.jobs], mode == "training")
        for mode in a.modes
        for at in range(0, len(a.models), a.jobs)
    ]
    for names, training in batches:
        done: set[str] = set()
        with tempfile.TemporaryDirectory() as lock, ThreadPoolExecutor(a.jobs + 1) as pool:
            pool.submit(send, lock, names, done, a.patience)

            def one(
                name: str, training: bool = training, lock: str = lock, done: set[str] = done
            ) -> Row:
                row = run(name, training, kinds, lock, a.seconds, a.timeout, a.systems)
                done.add(name)
                print(line(row), flush=True)
                rows.append(row)
                if a.json is not None:  # what there is, should the machine go away
                    a.json.write_text(json.dumps({"modes": kinds, "rows": rows}, indent=1))
                return row

            list(pool.map(one, names))
    average = means(rows)
    print("geometric mean over eager:", {k: round(v, 3) for k, v in average.items()}, flush=True)
    for text in (text for row in rows for text in missed(row, kinds)):
        print("missed:", text, flush=True)
    return 1 if any("ms" not in r.get("systems", {}).get("flambeau", {}) for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
