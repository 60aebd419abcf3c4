"""Models in bfloat16 on a GPU: eager, Flambeau and the incumbent, several compiled at a time.

Compiling takes the processors, and whoever is timed needs them too: cases are processes that
compile side by side, wait until all of a batch have, and are then timed one at a time.

    bash tools/gpu.sh python3 tools/gpu_models.py --jobs 8 --json OUT.json
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.systems import SYSTEMS, cache_environment, systems
from benchmarks.zoo import MODELS

Row = dict[str, Any]


@contextmanager
def alone(folder: str, name: str) -> Iterator[None]:
    """Say that this case has compiled, wait for the others of its batch, and hold the lock."""
    (Path(folder) / f"{name}.ready").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    with (Path(folder) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def send(folder: str, names: list[str], done: set[str], seconds: float) -> None:
    """Let a batch be timed once every case has compiled or ended, or after so many seconds."""
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        ready = {path.stem for path in Path(folder).glob("*.ready")}
        if ready | done >= set(names):
            break
        time.sleep(0.1)
    (Path(folder) / "go").touch()


def measure(
    name: str, training: bool, mode: str, lock: str, seconds: float, chosen: list[str]
) -> Row:
    """One case in this process."""
    import torch  # the parent process needs no torch
    from gpu_memory import Pools

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
    for system, wrap in systems(mode).items():
        if system not in chosen:
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
    from flambeau_inductor.runtime.compiled import CompiledGraph  # the parent process needs it not

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
    mode: str,
    lock: str,
    seconds: float,
    timeout: float,
    chosen: list[str],
) -> Row:
    """One case in a process of its own."""
    command = [sys.executable, __file__, "--case", name, "--mode", mode, "--lock", lock]
    command += ["--seconds", str(seconds), "--systems", *chosen] + ["--training"] * training
    found: Row = {"name": name, "training": training}
    with tempfile.TemporaryDirectory() as caches:
        environment = os.environ | cache_environment(caches) | {"OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return found | {"failed": f"no result in {timeout:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return found | {"failed": f"exit {done.returncode}: {last}"[:300]}
    return found | dict(json.loads(done.stdout.strip().splitlines()[-1]))


def line(row: Row) -> str:
    """A row of the table."""
    name = f"{row['name']} {'training' if row['training'] else 'inference'}"
    if "failed" in row:
        return f"| {name} | {row['failed']} |"
    parts = [name]
    eager = row["systems"]["eager"]
    for system in SYSTEMS:
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
    for system in SYSTEMS:
        ratios = []
        for row in rows:
            kept = row.get("systems", {})
            eager, own = kept.get("eager", {}).get("ms"), kept.get(system, {}).get("ms")
            ratios.append(eager / own if eager and own else 1.0)
        found[system] = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    return found


def missed(row: Row) -> list[str]:
    """The goals that a case misses."""
    name = f"{row['name']} {'training' if row['training'] else 'inference'}"
    kept = row.get("systems", {})
    eager, own, other = (kept.get(s, {}) for s in ("eager", "flambeau", "incumbent"))
    if "ms" not in own:
        return [f"{name}: {row.get('failed') or own.get('failed') or 'no result'}"]
    found = []
    for graph in row.get("graphs", ()):
        if not graph["replays"]:
            why = graph["why"] or ", ".join(graph["plain"])
            found.append(f"{name}: {graph['name']} is launched kernel by kernel: {why}")
    if "ms" in eager and own["ms"] > eager["ms"]:
        found.append(f"{name}: slower than eager by {own['ms'] / eager['ms'] - 1:.0%}")
    if other.get("mib") and own["mib"] > 1.02 * other["mib"] + 1:
        found.append(f"{name}: peak {own['mib']:.0f} MiB, the incumbent's {other['mib']:.0f}")
    if own.get("error") and eager.get("error") and own["error"] > 3 * eager["error"] + 1e-6:
        found.append(f"{name}: error {own['error']:.1e}, eager's {eager['error']:.1e}")
    return found


def main() -> int:
    """Run the cases; the exit status is 1 where Flambeau fails on one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--modes", nargs="*", default=["inference", "training"])
    parser.add_argument("--mode", default="default")
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
    if a.case:
        print(json.dumps(measure(a.case, a.training, a.mode, a.lock, a.seconds, a.systems)))
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
                row = run(name, training, a.mode, lock, a.seconds, a.timeout, a.systems)
                done.add(name)
                print(line(row), flush=True)
                rows.append(row)
                if a.json is not None:  # what there is, should the machine go away
                    a.json.write_text(json.dumps({"mode": a.mode, "rows": rows}, indent=1))
                return row

            list(pool.map(one, names))
    average = means(rows)
    print("geometric mean over eager:", {k: round(v, 3) for k, v in average.items()}, flush=True)
    for text in (text for row in rows for text in missed(row)):
        print("missed:", text, flush=True)
    return 1 if any("ms" not in r.get("systems", {}).get("flambeau", {}) for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
