"""`flambeau.trace`: recording of what a process compiles.

In: products of the stages. Out: a folder for `python -m flambeau report`. Invariant: a trace only
looks; what it cannot write is one warning, and the program goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flambeau.events.bus import EVERYTHING
from flambeau.tracing.events import RECORDED
from flambeau.tracing.writer import EventWriter

VARIABLE = "FLAMBEAU_TRACE"


class Trace:
    """A listener that writes events. A process that was forked from this one gets its own folder.

    root: the folder of the whole run, of which every process takes a part. kernel_times: run each
    kernel alone after it is built, against the bandwidth of a copy.
    """

    every_stage = True
    every_run = True

    def __init__(self, root: str | os.PathLike[str], kernel_times: bool = True) -> None:
        self.root = Path(root)
        self.kernel_times = kernel_times
        self.timed: dict[tuple[int, str, str], dict[str, float]] = {}
        self._lock = threading.Lock()
        self._writer: EventWriter | None = None

    @property
    def writer(self) -> EventWriter:
        """The writer of this process, made at the first event."""
        with self._lock:
            if self._writer is None or self._writer.process != os.getpid():
                self._writer = EventWriter(self.root)
            return self._writer

    def __call__(self, kind: str, product: object, owner: int) -> None:
        record = RECORDED.get(kind)
        if record is not None:
            record(self, product, owner)

    def folder(self, graph: str, half: str, owner: int) -> Path | None:
        """Where the inductor leaves what its stages make."""
        return self.writer.folder / self.writer.place(f"{owner}-{graph}-{half}")

    def close(self) -> None:
        """Write the last event."""
        with self._lock:
            writer = self._writer
        if writer is not None and writer.process == os.getpid():
            writer.event("end", -1, {})
            writer.close()


@contextmanager
def trace(folder: str | os.PathLike[str], *, kernel_times: bool = True) -> Iterator[Trace]:
    """Record all that is compiled within the block, on any thread, into `folder`.

    The folder may hold parts of other processes and of earlier blocks: each adds its own.
    """
    made = Trace(folder, kernel_times)
    EVERYTHING.add(made)
    try:
        yield made
    finally:
        EVERYTHING.remove(made)
        made.close()


_lock = threading.Lock()
_of_environment: dict[str, Trace] = {}


def from_environment() -> None:
    """Follow FLAMBEAU_TRACE, for the rest of the process."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    with _lock:
        if folder not in _of_environment:
            made = _of_environment[folder] = Trace(folder)
            EVERYTHING.add(made)
