"""This tree beside another commit: first calls and steady times, in alternating processes.

    python benchmarks/versions.py COMMIT --models minilm resnet18 --modes inference training

In: a commit, models of `zoo`. Out: a table of medians and their ratios, here over there, and a JSON
file. Invariant: each process has caches of its own, and both sides run the same benchmark on
packages that pip installed; only the packages differ.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.run import run_case, versions
from tools import releases

SIDES = ("there", "here")
MEASURES = ("cold s", "warm s", "steady ms")


def installed(tree: Path, site: Path) -> str:
    """A PYTHONPATH with the packages of a tree as pip installs them, their bytecode compiled."""
    packages = [str(tree / "packages" / package) for package in releases.PACKAGES]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, *packages], check=True)
    return os.pathsep.join((str(site), str(ROOT)))


def measured(name: str, mode: str, path: str, timeout: float) -> dict[str, float]:
    """Seconds of a cold and of a warm first call, milliseconds of a later one and of eager's."""
    os.environ["PYTHONPATH"] = path
    base = ["--name", name, *(["--training"] if mode == "training" else [])]
    with tempfile.TemporaryDirectory() as caches:
        cold, warm = (run_case(["first", *base], caches, timeout) for _ in range(2))
        steady = ["steady", *base, "--systems", "eager", "flambeau", "--budget", "3"]
        systems = run_case(steady, caches, timeout)["systems"]
    times = cold["seconds"], warm["seconds"], systems["flambeau"]["ms"]
    return {**dict(zip(MEASURES, times)), "eager ms": systems["eager"]["ms"]}


def main() -> None:
    """Install both, measure alternately, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--models", nargs="+", default=["minilm", "resnet18", "gpt2_4", "lstm"])
    parser.add_argument("--modes", nargs="+", default=["inference", "training"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    a = parser.parse_args()
    cases: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        archive = Path(folder) / "tree.tar"
        subprocess.run(
            ["git", "archive", "-o", str(archive), a.commit, "packages"], cwd=ROOT, check=True
        )
        shutil.unpack_archive(archive, tree, filter="data")
        paths = {side: installed(at, Path(folder) / side) for side, at in zip(SIDES, (tree, ROOT))}
        for name in a.models:
            for mode in a.modes:
                case = cases[f"{name} {mode}"] = {side: [] for side in SIDES}
                for _ in range(a.repeats):
                    for side in SIDES:
                        case[side].append(measured(name, mode, paths[side], a.timeout))
                print(name, mode, {key: f"{ratio(case, key):.3f}" for key in MEASURES}, flush=True)
    if a.json:
        a.json.write_text(
            json.dumps({"command": sys.argv, "versions": versions("cpu"), "cases": cases})
        )
    text = report(cases)
    print(text)
    if a.markdown:
        command = f"`python {' '.join(sys.argv)}`"
        said = ", ".join(f"{key} {value}" for key, value in versions("cpu").items())
        a.markdown.write_text(f"{command}\n\n{said}\n\n{text}\n")


def ratio(case: dict[str, list[dict[str, float]]], key: str) -> float:
    """Medians of a measure, here over there; a later call is counted in eager's, side by side."""
    here, there = (median(case[side], key) for side in ("here", "there"))
    return here / there


def median(rows: list[dict[str, float]], key: str) -> float:
    scale = "eager ms" if key == "steady ms" else None
    return statistics.median(row[key] / (row[scale] if scale else 1) for row in rows)


def report(cases: dict[str, Any]) -> str:
    """Ratios, here over there, a row a case, and their geometric mean."""
    rows = [[name, *(ratio(case, key) for key in MEASURES)] for name, case in cases.items()]
    means = [math.exp(statistics.fmean(math.log(row[k]) for row in rows)) for k in (1, 2, 3)]
    lines = ["| case | first call, cold | first call, warm | steady |", "|---|---|---|---|"]
    for name, *numbers in [*rows, ["geometric mean", *means]]:
        lines.append(f"| {name} | {' | '.join(f'{n:.3f}' for n in numbers)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
