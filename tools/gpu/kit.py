"""The prims' conformance kit on a GPU, its families side by side in processes of their own.

bash tools/gpu.sh python3 tools/gpu/kit.py --jobs 12 --json OUT.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STATUSES = ("right", "wrong", "error", "declared")
PARTS: tuple[tuple[str, ...], ...] = (
    ("pointwise",), ("special",), ("symbols",), ("dynamic",), ("reduction", "scan"), ("linalg",),
    ("pooling", "convolution"), ("graphs", "effects", "creation", "views"), ("random graphs",),
    ("shape", "sort"), ("indexing", "embedding", "scatter"), ("sampling", "distance", "random"),
    ("attention", "matmul", "complex", "ctc", "fft"),
)  # fmt: skip
"""Families that one process takes, those of many programs alone."""


def part(families: tuple[str, ...], device: str, dtype: str, seconds: float) -> dict[str, Any]:
    """The score card of some families; a process without one is a failure."""
    command = [sys.executable, "-W", "ignore", "-m", "flambeau_prims.conformance"]
    command += ["inductor_backend:backend", "--device", device, "--dtype", dtype, "--json"]
    command += [word for family in families for word in ("--family", family)]
    command += ["--random-graphs", "10"]
    tests = str(ROOT / "integration_tests" / "operators")
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds
        )
        return dict(json.loads(done.stdout[done.stdout.index("{") :]))
    except subprocess.TimeoutExpired:
        why = f"no card in {seconds:.0f} s"
    except ValueError:
        why = done.stderr.strip()[-2500:] or "no card"
    failure = {"program": ", ".join(families), "status": "error", "message": why}
    return {"families": {}, "declared": {}, "failures": [failure]}


def main() -> int:
    """Run the kit; the exit status is 1 where anything is wrong or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=13)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--families", nargs="*", help="only the processes that take one of these")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    parts = [p for p in PARTS if not given.families or set(p) & set(given.families)]
    with ThreadPoolExecutor(given.jobs) as pool:
        cards = list(pool.map(lambda p: part(p, given.device, given.dtype, given.seconds), parts))
    families = {name: row for card in cards for name, row in card["families"].items()}
    failures = [failure for card in cards for failure in card["failures"]]
    for name, row in sorted(families.items()):
        print(f"{name:14s} " + " ".join(f"{row[s]:5d} {s}" for s in STATUSES), flush=True)
    total = {s: sum(row[s] for row in families.values()) for s in STATUSES}
    print("total", total)
    for failure in failures:
        print(f"  {failure['program']}: {failure['status']}: {failure['message'][-2500:]}")
    for card in cards:
        for why, count in card["declared"].items():
            print(f"  declared {count}: {why[:150]}")
    if given.json is not None:
        result = {"families": families, "failures": failures}
        given.json.write_text(json.dumps(result, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
