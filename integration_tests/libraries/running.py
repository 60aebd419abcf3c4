"""Each workload in a process of its own, with a time-out.

In: names of workloads. Out: a row of each. Invariant: a process that dies or runs out of time is a
row too, with the stack it had; none outlives the run, and the parent has imported no library.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integration_tests.libraries.workload import Workload

Row = dict[str, Any]
ALONE = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
STACK_BEFORE = 5.0  # seconds before the end


def rows(
    names: Sequence[str], timeout: float, judge: Callable[[Workload], Row] | None = None
) -> Iterator[Row]:
    """A row of each workload, as they come, by `judge` or by the comparison with eager."""
    os.environ.update(ALONE)
    _warm()
    for name in names:
        started = time.monotonic()
        row = {"name": name, **_row(name, timeout, judge)}
        yield row | {"seconds": round(time.monotonic() - started, 1)}


def _warm() -> None:
    """Import what every process needs, before they are forked."""
    import torch  # slow, as the next ones

    import flambeau
    from benchmarks.zoo.torchvision_cpu import torchvision
    from integration_tests.libraries import judging

    del judging
    torchvision()  # many libraries import it
    torch.set_num_threads(1)  # a process with threads of its own cannot be forked safely
    x = torch.ones(2, requires_grad=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLAMBEAU_CACHE_DIR"] = folder
        flambeau.compile(lambda x: x.sin() + 1)(x).sum().backward()
    flambeau.reset()
    gc.freeze()


def _row(name: str, timeout: float, judge: Callable[[Workload], Row] | None) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        answer, told = Path(folder) / "row.json", Path(folder) / "stderr"
        pid = os.fork()
        if pid == 0:
            os.environ["FLAMBEAU_CACHE_DIR"] = str(Path(folder) / "cache")
            _judge(name, answer, told, timeout, judge)
        status = _wait(pid, timeout)
        if answer.exists():
            row: Row = json.loads(answer.read_text())
            return row
        lines = told.read_text(errors="replace").strip().splitlines() if told.exists() else []
    if status is None:  # the stack that was dumped begins with where it was
        stack = " | ".join(lines[:40])[:2500]
        return {"status": "timeout", "detail": f"no answer in {timeout:.0f} s: {stack}"}
    tail = " | ".join(lines[-40:])[-2500:]
    return {"status": "crashed", "detail": f"the process died ({status}): {tail}"}


def _judge(
    name: str, answer: Path, told: Path, timeout: float, judge: Callable[[Workload], Row] | None
) -> None:
    """What each process does; it does not return."""
    status = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        stderr = os.open(told, os.O_WRONLY | os.O_CREAT, 0o600)
        for old, new in ((0, quiet), (1, quiet), (2, stderr)):
            os.dup2(new, old)
        faulthandler.enable(2)
        faulthandler.dump_traceback_later(max(1.0, timeout - STACK_BEFORE), file=2)
        from integration_tests.libraries import judging  # imported before the fork
        from integration_tests.libraries.workload import load

        written = answer.with_suffix(".part")
        written.write_text(json.dumps((judge or judging.judge)(load()[name])))
        written.rename(answer)
        status = 0
    except BaseException:
        import traceback  # here: where something has failed

        traceback.print_exc()
    finally:
        os._exit(status)


def _wait(pid: int, timeout: float) -> int | None:
    """The status of a process, ended with what it has started; None if it ran out of time."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
