"""Each model in a process of its own: what one does to torch or to memory stays there.

In: cases, modes, a system. Out: a row per case and mode. Invariant: a child that dies or runs out
of time is a row too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from integration_tests.sweep.cases import Case, NotBuilt
from integration_tests.sweep.judging import System, judge, seed_all

Row = dict[str, Any]


def sweep(
    cases: Sequence[Case], modes: Sequence[str], system: System, timeout: float
) -> Iterator[list[Row]]:
    """The rows of each case, in order; libraries are imported already, children inherit them."""
    torch.set_num_threads(1)  # a process with threads of its own cannot be forked safely
    system(torch.nn.Identity())[0](torch.ones(1))  # what compiling imports, the children inherit
    gc.freeze()
    for case in cases:
        yield run_case(case, modes, system, timeout)


def run_case(case: Case, modes: Sequence[str], system: System, timeout: float) -> list[Row]:
    """Judge one case in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(case, modes, system, writer)
    os.close(writer)
    text, ended = _read(reader, time.monotonic() + timeout)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    rows = [row for row in lines if row["status"] != BUILT]
    built = {row["mode"] for row in lines if row["status"] == BUILT}
    if not any(row["status"] == "not built" for row in rows):
        rows += [_missing(mode, mode in built, ended, status, timeout) for mode in modes
                 if mode not in {row["mode"] for row in rows}]  # fmt: skip
    for row in rows:
        row.update(name=case.name, family=case.family)
    return rows


BUILT = "built"


def _missing(mode: str, built: bool, ended: bool, status: int, timeout: float) -> Row:
    """The row of a mode that the child has not told of."""
    if ended:
        return {"mode": mode, "status": "crashed", "detail": f"the process died ({status})"}
    if built:
        return {"mode": mode, "status": "timeout", "detail": f"no answer in {timeout:.0f} s"}
    return {"mode": mode, "status": "not built", "detail": f"not built in {timeout:.0f} s"}


def _read(reader: int, deadline: float) -> tuple[str, bool]:
    """What the child writes, and whether it came to its end in time."""
    parts: list[bytes] = []
    with contextlib.closing(os.fdopen(reader, "rb", buffering=0)) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            part = stream.read(65536) if ready else b""
            if not part:
                return b"".join(parts).decode(), bool(ready)
            parts.append(part)


def _child(case: Case, modes: Sequence[str], system: System, writer: int) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if not os.environ.get("SWEEP_LOUD"):
        os.dup2(quiet, 2)
    with os.fdopen(writer, "w") as stream:
        for mode in modes:
            try:
                seed_all()
                subject = case.build()
                print(json.dumps({"status": BUILT, "mode": mode}), file=stream, flush=True)
                row = judge(subject, mode == "training", system).row()
            except NotBuilt as error:
                row = {"status": "not built", "detail": str(error)}
            except BaseException:
                row = {"status": "not run", "detail": traceback.format_exc()[-700:]}
            row["mode"] = mode
            print(json.dumps(row), file=stream, flush=True)
            if row["status"] == "not built":
                break
    os._exit(0)
