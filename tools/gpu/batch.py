"""Cases that compile side by side, and are then timed one at a time.

Compiling takes the processors, and whoever is timed needs them too: each case, or share of the
cases, is a process that says when it has compiled, waits until all of its batch have, and then has
the device to itself.

In: commands. Out: the JSON that each prints on its last line. Invariant: nobody is timed while
another process of the batch computes, unless it did not get ready in time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.systems import cache_environment

Row = dict[str, Any]
EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
"""How a traceback's last line begins."""


@contextmanager
def alone(folder: str, name: str) -> Iterator[None]:
    """Say that this case has compiled, wait for the others of its batch, and hold the lock."""
    (Path(folder) / f"{name}.ready").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    with (Path(folder) / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def send(folder: str, names: Sequence[str], done: set[str], seconds: float) -> None:
    """Let a batch be timed once every case has compiled or ended, or after so many seconds."""
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        ready = {path.stem for path in Path(folder).glob("*.ready")}
        if ready | done >= set(names):
            break
        time.sleep(0.1)
    (Path(folder) / "go").touch()


def child(command: Sequence[str], timeout: float, **more: str) -> Row:
    """What a process prints on its last line, with caches of its own and `more` environment; or
    `failed`, and why."""
    with tempfile.TemporaryDirectory() as caches:
        environment = os.environ | cache_environment(caches) | {"OMP_NUM_THREADS": "1"} | more
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no result in {timeout:.0f} s"}
    if done.returncode:
        return {"failed": f"exit {done.returncode}: {reason(done.stderr)}"[:500]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def reason(said: str) -> str:
    """The first exception that a process named as its end, or else the last that it said: what is
    said while a process with a broken device ends comes behind it."""
    lines = said.strip().splitlines()
    named = [line for line in lines if EXCEPTION.match(line)]
    return (named or lines[-1:] or ["no message"])[0]
