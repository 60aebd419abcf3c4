"""Each workload in a process of its own, with a time-out.

In: names of workloads. Out: a row of each. Invariant: a process that dies or runs out of time is a
row too, with the stack it had, and none outlives the run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
ALONE = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "MPLBACKEND": "agg",
    "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled",
}  # fmt: skip
STACK_BEFORE = 5.0  # seconds before the end


def rows(names: Sequence[str], timeout: float) -> Iterator[Row]:
    """A row of each workload, as they come."""
    for name in names:
        started = time.monotonic()
        row = {"name": name, **_row(name, timeout)}
        yield row | {"seconds": round(time.monotonic() - started, 1)}


def _row(name: str, timeout: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        answer, told = Path(folder) / "row.json", Path(folder) / "stderr"
        command = [sys.executable, "-m", "integration_tests.libraries", "--one", name]
        command += ["--json", str(answer), "--timeout", str(timeout)]
        environment = os.environ | ALONE | {"FLAMBEAU_CACHE_DIR": str(Path(folder) / "cache")}
        with told.open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=stream, start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
        if answer.exists():
            row: Row = json.loads(answer.read_text())
            return row
        tail = " | ".join(told.read_text(errors="replace").strip().splitlines()[-14:])[-1500:]
    if status is None:
        return {"status": "timeout", "detail": f"no answer in {timeout:.0f} s: {tail}"}
    return {"status": "crashed", "detail": f"the process died ({status}): {tail}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
