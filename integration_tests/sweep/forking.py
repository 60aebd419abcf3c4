"""Each model in a process of its own: what one does to torch, to memory or to the clock stays there.

In: cases, modes, a system. Out: a row per case and mode. Invariant: a child that dies or runs out of
time is a row too.
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
    text = _read(reader, time.monotonic() + timeout)
    if text is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    rows = [json.loads(line) for line in (text or "").splitlines() if line]
    done = {row["mode"] for row in rows}
    why = f"no answer in {timeout:.0f} s" if text is None else f"the process died ({status})"
    for mode in modes:
        if mode not in done and not any(row["status"] == "not built" for row in rows):
            rows.append({"status": "timeout" if text is None else "crashed", "detail": why,
                         "mode": mode})  # fmt: skip
    for row in rows:
        row.update(name=case.name, family=case.family)
    return rows


def _read(reader: int, deadline: float) -> str | None:
    """All that the child writes; None when the time is over (what it wrote is lost with it)."""
    parts: list[bytes] = []
    with contextlib.closing(os.fdopen(reader, "rb", buffering=0)) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            part = stream.read(65536)
            if not part:
                return b"".join(parts).decode()
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
                row = judge(case.build(), mode == "training", system).row()
            except NotBuilt as error:
                row = {"status": "not built", "detail": str(error)}
            except BaseException:
                row = {"status": "not run", "detail": traceback.format_exc()[-700:]}
            row["mode"] = mode
            print(json.dumps(row), file=stream, flush=True)
            if row["status"] == "not built":
                break
    os._exit(0)
