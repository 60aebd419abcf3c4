"""Each model in a process of its own: what one does to torch or to memory stays there.

In: cases, modes, a system. Out: a row per case and mode, as children end. Invariant: a child that
dies or runs out of time is a row too, and no child outlives the sweep.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from integration_tests.sweep.cases import Case, NotBuilt
from integration_tests.sweep.judging import System, judge, seed_all

Row = dict[str, Any]
BUILT = "built"


@dataclass
class Child:
    """A process that judges one case, and what it has written so far."""

    case: Case
    modes: Sequence[str]
    timeout: float
    pid: int
    reader: int
    deadline: float
    text: bytearray = field(default_factory=bytearray)
    ended: bool = False
    begun: float = field(default_factory=time.monotonic)

    def read(self) -> bool:
        """Take what is there; True at the end."""
        part = os.read(self.reader, 65536)
        self.text += part
        self.ended = not part
        return self.ended

    def rows(self) -> list[Row]:
        """End the process if it has not, and say what came of each mode."""
        os.close(self.reader)
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        lines = [json.loads(line) for line in self.text.decode().splitlines() if line[-1:] == "}"]
        rows = [row for row in lines if row["status"] != BUILT]
        built = {row["mode"] for row in lines if row["status"] == BUILT}
        if not any(row["status"] == "not built" for row in rows):
            told = {row["mode"] for row in rows}
            rows += [self._missing(mode, mode in built, status) for mode in self.modes
                     if mode not in told]  # fmt: skip
        seconds = round(time.monotonic() - self.begun, 1)
        for row in rows:
            row.update(name=self.case.name, family=self.case.family, seconds=seconds)
        return rows

    def _missing(self, mode: str, built: bool, status: int) -> Row:
        """The row of a mode that the child has not told of."""
        if self.ended:
            return {"mode": mode, "status": "crashed", "detail": f"the process died ({status})"}
        if built:
            told = f"no answer in {self.timeout:.0f} s"
            return {"mode": mode, "status": "timeout", "detail": told}
        return {"mode": mode, "status": "not built", "detail": f"not built in {self.timeout:.0f} s"}


def sweep(
    cases: Iterable[Case],
    modes: Sequence[str],
    system: System,
    timeout: float,
    jobs: int = 1,
    until: float | None = None,
) -> Iterator[list[Row]]:
    """The rows of each case, as they come; `jobs` children at once. After `until` (a time of
    `time.monotonic`) no case is begun, and those under way have no row.

    Libraries are imported already: children inherit them.
    """
    torch.set_num_threads(1)  # a process with threads of its own cannot be forked safely
    system(torch.nn.Identity())[0](torch.ones(1))  # what compiling imports, the children inherit
    gc.freeze()
    waiting = iter(cases)
    running: list[Child] = []
    late = until if until is not None else float("inf")
    try:
        while True:
            while len(running) < jobs and time.monotonic() < late:
                case = next(waiting, None)
                if case is None:
                    break
                running.append(_start(case, modes, system, timeout))
            if not running or time.monotonic() >= late:
                return
            for child in _finished(running, late):
                running.remove(child)
                yield child.rows()
    finally:
        for child in running:
            child.rows()


def run_case(case: Case, modes: Sequence[str], system: System, timeout: float) -> list[Row]:
    """Judge one case in a child."""
    child = _start(case, modes, system, timeout)
    while not _finished([child], float("inf")):
        pass
    return child.rows()


def _finished(running: list[Child], until: float) -> list[Child]:
    """Wait for something to happen; the children that have come to their end or out of time."""
    first = min(until, *(child.deadline for child in running))
    readers = {child.reader: child for child in running}
    ready, _, _ = select.select(list(readers), [], [], max(0.0, first - time.monotonic()))
    ended = [readers[reader] for reader in ready if readers[reader].read()]
    now = time.monotonic()
    return ended + [c for c in running if c.deadline <= now and c not in ended]


def _start(case: Case, modes: Sequence[str], system: System, timeout: float) -> Child:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _judge(case, modes, system, writer)
    os.close(writer)
    return Child(case, modes, timeout, pid, reader, time.monotonic() + timeout)


def _judge(case: Case, modes: Sequence[str], system: System, writer: int) -> None:
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
