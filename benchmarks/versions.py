"""The last commit beside another: first calls and steady times, in alternating processes.

    python benchmarks/versions.py COMMIT --models minilm resnet18 --modes inference training
    python benchmarks/versions.py COMMIT --json out.json --sites /tmp/sites --resume

In: a commit, models of `zoo`. Out: a table of minima and their ratios, here over there, and a JSON
file, each row as soon as it is measured. Invariant: each process has caches of its own, and both
sides run the same benchmark on packages that pip installed; only the packages differ. The sides
take turns, so that other work on the machine meets both; the minimum is what it disturbs least. A
row ends after `--row-seconds`, with what was measured by then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.run import Case, run_case, versions, write
from tools import releases

SIDES = ("there", "here")
MEASURES = ("cold s", "warm s", "steady ms")


def installed(commit: str, sites: Path) -> str:
    """A PYTHONPATH with the packages of a commit as pip installs them, their bytecode compiled;
    what is there from an earlier run is taken as it is."""
    parsed = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(parsed, cwd=ROOT, check=True, capture_output=True, text=True)
    name = found.stdout.strip()
    site = sites / name
    if not site.exists():
        with tempfile.TemporaryDirectory(dir=sites) as folder:
            archive, tree, made = (Path(folder) / each for each in ("tree.tar", "tree", "made"))
            subprocess.run(
                ["git", "archive", "-o", str(archive), name, "packages"], cwd=ROOT, check=True
            )
            shutil.unpack_archive(archive, tree, filter="data")
            packages = [str(tree / "packages" / package) for package in releases.PACKAGES]
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
            subprocess.run([*pip, str(made), *packages], check=True)
            made.rename(site)
    return os.pathsep.join((str(site), str(ROOT)))


def measured(name: str, mode: str, path: str, deadline: float) -> dict[str, float]:
    """Seconds of a cold and of a warm first call, milliseconds of a later one and of eager's: what
    there was time for."""
    os.environ["PYTHONPATH"] = path
    base = ["--name", name, *(["--training"] if mode == "training" else [])]
    steady = ["steady", *base, "--systems", "eager", "flambeau", "--budget", "3"]
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as caches:

        def run(arguments: list[str]) -> Case:
            case = run_case(arguments, caches, max(1.0, deadline - time.monotonic()))
            if "failed" in case:
                print(f"{name} {mode} {arguments[0]}: {case['failed']}", flush=True)
            return case

        for measure in MEASURES[:2]:
            case = run(["first", *base])
            if "seconds" not in case:
                return found
            found[measure] = case["seconds"]
        systems = run(steady).get("systems", {})
    if all("ms" in systems.get(system, {}) for system in ("eager", "flambeau")):
        found |= {"steady ms": systems["flambeau"]["ms"], "eager ms": systems["eager"]["ms"]}
    return found


def measure_row(
    name: str, mode: str, paths: dict[str, str], repeats: int, seconds: float
) -> dict[str, list[dict[str, float]]]:
    """Both sides in turn, so often or for so long; a side's turn is begun if it may end."""
    row: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    begun, longest = time.monotonic(), 0.0
    for _ in range(repeats):
        if time.monotonic() + 2 * longest > begun + seconds and row["here"]:
            break
        for side in SIDES:
            start = time.monotonic()
            share = begun + (seconds if side == "here" else seconds / 2)
            deadline = share if not row[side] else begun + seconds
            row[side].append(measured(name, mode, paths[side], deadline))
            longest = max(longest, time.monotonic() - start)
    return row


def main() -> None:
    """Install both, measure alternately, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit")
    parser.add_argument("--models", nargs="+", default=["minilm", "resnet18", "gpt2_4", "lstm"])
    parser.add_argument("--modes", nargs="+", default=["inference", "training"])
    parser.add_argument("--repeats", type=int, default=3, help="turns of each side a row")
    parser.add_argument(
        "--row-seconds", type=float, default=600, help="seconds that a row may take"
    )
    parser.add_argument("--json", type=Path, help="write all figures there, after each row")
    parser.add_argument("--sites", type=Path, help="keep what pip installs there for other runs")
    parser.add_argument("--resume", action="store_true", help="keep the rows in the JSON file")
    parser.add_argument("--markdown", type=Path, help="write the table there, after each row")
    a = parser.parse_args()
    cases: dict[str, dict[str, list[dict[str, float]]]] = {}
    if a.resume and a.json and a.json.exists():
        cases = json.loads(a.json.read_text())["cases"]
    command = f"python benchmarks/versions.py {' '.join(sys.argv[1:])}"
    said = versions("cpu")
    with tempfile.TemporaryDirectory() as folder:
        sites = a.sites or Path(folder)
        sites.mkdir(parents=True, exist_ok=True)
        paths = {side: installed(at, sites) for side, at in zip(SIDES, (a.commit, "HEAD"))}
        for name, mode in ((name, mode) for name in a.models for mode in a.modes):
            if complete(cases.get(f"{name} {mode}")):
                continue
            before = os.getloadavg()[0]
            row = measure_row(name, mode, paths, a.repeats, a.row_seconds)
            cases[f"{name} {mode}"] = row
            print(line(f"{name} {mode}", row), f"load {before:.1f}", flush=True)
            if a.json:
                write(a.json, {"command": command, "versions": said, "cases": cases})
            if a.markdown:
                kept = ", ".join(f"{key} {value}" for key, value in said.items())
                a.markdown.write_text(f"`{command}`\n\n{kept}\n\n{report(cases)}\n")
    print(report(cases))


def complete(row: dict[str, list[dict[str, float]]] | None) -> bool:
    """Whether both sides of a row have every measure."""
    return row is not None and all(ratio(row, key) is not None for key in MEASURES)


def ratio(row: dict[str, list[dict[str, float]]], key: str) -> float | None:
    """Minima of a measure, here over there; None where a side has none."""
    here, there = (least(row[side], key) for side in ("here", "there"))
    return None if here is None or there is None else here / there


def least(times: list[dict[str, float]], key: str) -> float | None:
    """A later call is counted in eager's of the same process, side by side."""
    scale = "eager ms" if key == "steady ms" else None
    return min((t[key] / (t[scale] if scale else 1) for t in times if key in t), default=None)


def line(name: str, row: dict[str, list[dict[str, float]]]) -> str:
    """A row of the table: the ratio, and both minima."""
    cells = []
    for key in MEASURES:
        here, there = (least(row[side], key) for side in ("here", "there"))
        if here is None or there is None:
            cells.append("not measured")
        else:
            cells.append(f"{here / there:.3f} ({here:.2f} / {there:.2f})")
    return f"| {name} | {' | '.join(cells)} | {min(len(row[side]) for side in SIDES)} |"


def report(cases: dict[str, Any]) -> str:
    """Ratios, here over there, a row a case, and their geometric mean."""
    lines = ["| case | first call, cold (s) | first call, warm (s) | steady (eager's) | turns |"]
    lines += ["|---|---|---|---|---|", *(line(name, row) for name, row in cases.items())]
    means = []
    for key in MEASURES:
        known = [r for row in cases.values() if (r := ratio(row, key)) is not None]
        mean = math.exp(statistics.fmean(map(math.log, known))) if known else None
        means.append("not measured" if mean is None else f"{mean:.3f} of {len(known)}")
    return "\n".join([*lines, f"| geometric mean | {' | '.join(means)} | |"])


if __name__ == "__main__":
    main()
