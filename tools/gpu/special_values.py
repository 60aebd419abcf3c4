"""Operators on special values, compiled, against eager on the GPU: what differs, by bits.

The cases are those of `integration_tests/operators/numerics.py`: pointwise primitives from their
registry, ATen's operators with numbers, chains and conversions. Each process takes cases of one
dtype, so many at a time in one compiled function; what takes a process down is named. The exit
status is 1 where something differs.

    bash tools/gpu.sh python3 tools/gpu/special_values.py --seconds 240 --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "integration_tests" / "operators"))

TOGETHER = 24
"""Cases of one compiled function."""
SHARES = {"float32": 6, "float64": 5, "float16": 6, "bfloat16": 6}
"""How many processes share the cases of a dtype; one, if it is not named."""


def work(dtype: str, share: int, shares: int, device: str, only: str) -> None:
    """Print what each function of cases gives, a line of JSON each."""
    import numerics  # with torch, in the processes that work
    import torch

    every = numerics.cases(getattr(torch, dtype), device)
    some = [case for case in every[share::shares] if only in case.name]
    for start in range(0, len(some), TOGETHER):
        part = some[start : start + TOGETHER]
        print(json.dumps({"began": [case.name for case in part]}), flush=True)
        found = [asdict(each) for each in numerics.differences(part)]
        print(json.dumps({"cases": len(part), "found": found}), flush=True)


def run(task: tuple[str, int, int], device: str, only: str, until: float) -> dict[str, Any]:
    """One process; what it had said when its time was over."""
    dtype, share, shares = task
    command = [sys.executable, "-W", "ignore", __file__, "--work", dtype, str(share), str(shares)]
    command += ["--device", device, "--only", only]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_NUM_THREADS": "1"}
    said, fault = "", ""
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=max(1.0, until - time.monotonic()),
        )
        said = done.stdout
        if done.returncode:
            fault = f"ended with {done.returncode}: {done.stderr[-800:]}"
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        fault = "out of time"
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    began = next((line["began"] for line in reversed(lines) if "began" in line), [])
    return {
        "dtype": dtype,
        "cases": sum(line.get("cases", 0) for line in lines),
        "found": [each for line in lines for each in line.get("found", ())],
        "fault": f"{fault} in {began}" if fault else "",
    }


def page(results: Sequence[dict[str, Any]]) -> str:
    """The results by class, dtype and case."""
    lines = [f"{sum(r['cases'] for r in results)} cases"]
    for exact, title in ((True, "Exact"), (False, "Within eager's own error")):
        lines += ["", title, ""]
        for result in sorted(results, key=lambda r: str(r["dtype"])):
            for each in result["found"]:
                if each["exact"] == exact:
                    count = "raises" if each["elements"] < 0 else f"{each['elements']} differ"
                    first = ", ".join(each["first"])
                    lines.append(f"{result['dtype']:9s} {each['case']:28s} {count}: {first}")
    lines += ["", *(f"{r['dtype']}: {r['fault']}" for r in results if r["fault"])]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all processes; the exit status is 1 where anything differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="*", default=None)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work[0], int(given.work[1]), int(given.work[2]), given.device, given.only)
        return 0
    import numerics  # its dtypes, once arguments are known to be right

    dtypes = given.dtypes or [str(d).removeprefix("torch.") for d in numerics.DTYPES]
    tasks = [(d, i, SHARES.get(d, 1)) for d in dtypes for i in range(SHARES.get(d, 1))]
    until = time.monotonic() + given.seconds
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(lambda t: run(t, given.device, given.only, until), tasks))
    text = page(results)
    print(text)
    if given.out is not None:
        given.out.write_text(text)
    return 1 if any(r["found"] or r["fault"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
