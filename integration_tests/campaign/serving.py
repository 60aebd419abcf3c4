"""Processes that judge programs one after another, and survive their deaths.

In: tasks, as plain data. Out: rows, one a task. Invariant: a task ends with a row, whatever the
product does to the process: a crash or a hang is the row of the program that did it, and a program
that eager itself does not get to the end of is "not drawn".
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

Task = dict[str, Any]
Row = dict[str, Any]
FRAMES = 16
"""So many of a crash's frames are kept."""
TASKS_A_PROCESS = 400
"""After so many a process ends and another begins: what compiled programs leave is not measured."""

PATIENCE = 4
"""A task that waits, for another process or for ever, is given its limit so many times."""


@dataclass(frozen=True)
class Conditions:
    """What processes judge under. limit: seconds of the processor that each side has."""

    device: str = "cpu"
    limit: float = 30.0
    interpret: bool = False

    def options(self) -> dict[str, object]:
        chosen: dict[str, object] = {"disk_cache": False}
        return chosen | ({"kernels": "triton"} if self.interpret else {})

    @functools.cached_property
    def forks(self) -> bool:
        """Whether processes are forked from this one: not where a GPU is used, nor from a build
        of torch for GPUs, whose threads that derive do not outlive a fork."""
        import torch

        return self.device == "cpu" and torch.version.cuda is None


def answer(task: Task, conditions: Conditions, say: Callable[[Row], None]) -> Row:
    """The row of one task: `{"name": "family:seed", ...}` or `{"program": {...}}`."""
    from integration_tests.campaign import families  # after the fork, where it is not loaded yet
    from integration_tests.campaign.program import from_json
    from integration_tests.campaign.verdicts import row_of, synchronized

    started = time.perf_counter()
    if "program" in task:
        program = from_json(task["program"])
    else:
        program = families.drawn(task["name"], task.get("backend", "mix"), conditions.device)
        say({"source": program.to_json()})
    drawn = time.perf_counter() - started
    row = row_of(
        program, conditions.device, conditions.options(), lambda: say({"eager": "has ended"})
    )
    synchronized(conditions.device)
    return row | {"drawn": round(drawn, 3)}


def serve(tasks: IO[str], rows: IO[str], conditions: Conditions) -> None:
    """Answer tasks until there are none."""

    from integration_tests.campaign.verdicts import BrokenByEager  # after the fork, as above

    def say(row: Row) -> None:
        rows.write(json.dumps(row, default=str) + "\n")
        rows.flush()

    for line in tasks:
        task = json.loads(line)
        last = False
        try:
            row = answer(task, conditions, say)
        except BaseException as error:  # of the campaign itself, or of a broken device
            text = traceback.format_exc()
            last = "CUDA error" in text or "CUDA driver" in text
            verdict = "crash" if last else "not drawn"
            if isinstance(error, BrokenByEager):
                last, verdict = True, "raises"
            row = {
                "program": task.get("name", "?"), "verdict": verdict, "ends": last,
                "where": str(error)[:100], "text": text[-600:], "frames": frames_of(error),
            }  # fmt: skip
        say(row)
        if last:
            return


def processor_seconds(pid: int) -> float:
    """What a process and the children that it waited for have computed; on systems that do not
    tell, as long as it has been since they started."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")


def frames_of(error: BaseException) -> list[str]:
    """Where an error came from, the innermost frames last, in words."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)[-FRAMES:]
    return [f"{f.filename}:{f.lineno} in {f.name}: {f.line}" for f in frames]


class Worker:
    """A process and the task that it is at."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.task: Task | None = None
        self.deadline = self.waits_until = 0.0
        self.used = 0.0
        self.served = 0
        self.said = tempfile.TemporaryFile()
        self._begin()

    def _begin(self) -> None:
        task_reader, task_writer = os.pipe()
        row_reader, row_writer = os.pipe()
        if self.conditions.forks:
            self.pid = _forked(task_reader, row_writer, (task_writer, row_reader), self)
        else:
            self.pid = _spawned(task_reader, row_writer, self)
        os.close(task_reader)
        os.close(row_writer)
        self.tasks = os.fdopen(task_writer, "w")
        self.reader = row_reader
        self.received = b""

    def give(self, task: Task) -> None:
        self.task = task
        fresh = 60.0 if not self.served and not self.conditions.forks else 0.0
        self.source: Row | None = task.get("program")
        self.eager_ended = False
        self._allow(self.conditions.limit + fresh)
        self.served += 1
        with contextlib.suppress(BrokenPipeError):
            self.tasks.write(json.dumps(task) + "\n")
            self.tasks.flush()

    def _allow(self, seconds: float) -> None:
        self.used = processor_seconds(self.pid) + seconds
        self.deadline = time.monotonic() + seconds
        self.waits_until = time.monotonic() + PATIENCE * seconds

    def is_late(self) -> bool:
        """Whether the task had the processor for its limit; where others had it, it has longer."""
        now = time.monotonic()
        if now < self.deadline:
            return False
        left = self.used - processor_seconds(self.pid)
        if left <= 0 or now >= self.waits_until:
            return True
        self.deadline = min(now + left, self.waits_until)
        return False

    def read(self) -> Row | None:
        """The row of the task, once it is whole; the process's end is one too."""
        got = os.read(self.reader, 1 << 16)
        self.received += got
        if self.received.endswith(b"\n"):
            row: Row = {}
            for line in self.received.splitlines():
                row = json.loads(line)
                if "verdict" not in row:
                    self.source = row.get("source", self.source)
                if "eager" in row:  # what is compiled has as long again
                    self.eager_ended = True
                    self._allow(self.conditions.limit)
            self.received = b""
            if "verdict" not in row:
                return None
            if self.served >= TASKS_A_PROCESS or row.pop("ends", False):
                self.end()
            return self._done(row)
        if got:
            return None
        return self._done(self._crash())

    def _crash(self) -> Row:
        _, status = os.waitpid(self.pid, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        name = (
            signal.Signals(number).name if number else f"exit {os.waitstatus_to_exitcode(status)}"
        )
        self.pid = 0
        said = self._tail()
        frames = [line.strip() for line in said.splitlines() if line.strip().startswith("File ")]
        where = frames[0].split(", line")[0].rpartition("/")[2].strip('"') if frames else ""
        inside = frames[0].rpartition(" in ")[2] if frames else said[-80:]
        told = {"where": f"{name} in {where} {inside}", "text": said[-1500:]}
        return {"verdict": "crash", **told, "frames": frames[:FRAMES]}

    def _tail(self) -> str:
        """What the process said last, without the list of modules that ends a report of a crash."""
        self.said.seek(0)
        said = self.said.read().decode("utf-8", "replace")
        return said.partition("\nExtension modules: ")[0][-4000:]

    def late(self) -> Row:
        """The task took too long: the process is ended; where it stood is told."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
        frames = [
            line.strip() for line in self._tail().splitlines() if line.strip().startswith("File ")
        ]
        of_eager = "" if self.eager_ended else f"eager takes more than {self.conditions.limit} s\n"
        told = {"where": " < ".join(frames[:1]), "text": of_eager + "\n".join(frames[:8])}
        row = {"verdict": "hang", **told}
        self.end()
        return self._done(row)

    def _done(self, row: Row) -> Row:
        assert self.task is not None
        row.setdefault("program", self.task.get("name") or self.task["label"])
        if row["program"] == "?":
            row["program"] = self.task.get("label", "?")
        if row["verdict"] in ("crash", "hang") and not self.eager_ended:
            row["verdict"] = "not drawn"
        if row["verdict"] in ("crash", "hang", "differs", "fault", "not drawn"):
            row["source"] = self.source
        if self.pid == 0:
            self._restart()
        self.task = None
        return row

    def _restart(self) -> None:
        os.close(self.reader)
        with contextlib.suppress(BrokenPipeError):
            self.tasks.close()
        self.said.close()
        self.said = tempfile.TemporaryFile()
        self.served = 0
        self._begin()

    def end(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _forked(task_reader: int, row_writer: int, others: tuple[int, ...], worker: Worker) -> int:
    pid = os.fork()
    if pid:
        return pid
    for each in others:
        os.close(each)
    _quiet(worker.said.fileno())
    try:
        with os.fdopen(task_reader) as tasks, os.fdopen(row_writer, "w") as rows:
            serve(tasks, rows, worker.conditions)
    finally:
        os._exit(0)


def _quiet(said: int) -> None:
    os.dup2(said, 2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    faulthandler.enable(file=sys.__stderr__)
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=True)


def _spawned(task_reader: int, row_writer: int, worker: Worker) -> int:
    c = worker.conditions
    command = [sys.executable, "-W", "ignore", "-m", "integration_tests.campaign.serving"]
    command += [str(task_reader), str(row_writer), json.dumps([c.device, c.limit, c.interpret])]
    done = subprocess.Popen(
        command, pass_fds=(task_reader, row_writer), stdout=subprocess.DEVNULL, stderr=worker.said
    )
    return done.pid


def answered(
    tasks: Iterator[Task | None], processes: int, conditions: Conditions,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Task, Row]]:  # fmt: skip
    """Rows as they come, until the tasks are used up or `until` says so; `None` among the tasks:
    nothing now, ask again when a row has come."""
    workers = [Worker(conditions) for _ in range(processes)]
    try:
        more = True
        while True:
            for worker in workers:
                if worker.task is None and more and not until():
                    task = next(tasks, False)
                    if task is False:
                        more = False
                    elif task is None:
                        break
                    else:
                        worker.give(task)
            busy = [w for w in workers if w.task is not None]
            if not busy:
                return
            wait = max(0.0, min(w.deadline for w in busy) - time.monotonic())
            ready, _, _ = select.select([w.reader for w in busy], [], [], wait)
            for worker in busy:
                task = worker.task
                assert task is not None
                if worker.reader in ready:
                    row = worker.read()
                    if row is not None:
                        yield task, row
                elif worker.is_late():
                    yield task, worker.late()
    finally:
        for worker in workers:
            worker.end()


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _device, _limit, _interpret = json.loads(sys.argv[3])
    with os.fdopen(int(sys.argv[1])) as _tasks, os.fdopen(int(sys.argv[2]), "w") as _rows:
        serve(_tasks, _rows, Conditions(_device, _limit, _interpret))
