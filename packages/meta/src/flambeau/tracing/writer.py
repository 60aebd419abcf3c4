"""Writer of one process's part of a trace: `process.json`, `events.jsonl`, artifacts.

In: events as plain data, texts. Out: lines and files. Invariant: a line is written whole or not at
all (one `write` on a file opened for appending), so that a process that is killed, or that several
threads write from, leaves events that can be read.

Every event has `t` (seconds since the epoch, when it was written), `thread`, `kind` and `owner`
(the number of the compiled callable in its process); the other fields are those of its kind.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from flambeau.__about__ import __version__

FORMAT = 1
EVENTS = "events.jsonl"
PROCESS = "process.json"
ARTEFACTS = "artefacts"


class EventWriter:
    """Writes one process's events. After a fork the child must make its own."""

    def __init__(self, root: Path) -> None:
        rank = _rank()
        head = f"rank{rank}-" if rank else ""
        root.mkdir(parents=True, exist_ok=True)
        self.process = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{head}process{self.process}-", dir=root))
        (self.folder / ARTEFACTS).mkdir()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        facts = {
            "format": FORMAT,
            "process": self.process,
            "rank": rank,
            "started": time.time(),
            "arguments": sys.argv,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "flambeau": __version__,
            "machine": platform.node(),
        }
        (self.folder / PROCESS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(self.folder / EVENTS, flags, 0o600)

    def event(self, kind: str, owner: int, fields: Mapping[str, Any]) -> None:
        """Write one event."""
        head = {"t": time.time(), "thread": threading.get_ident(), "kind": kind, "owner": owner}
        line = json.dumps({**fields, **head}, default=str) + "\n"
        with self._lock:
            os.write(self._file, line.encode("utf-8"))

    def artefact(self, name: str, text: str) -> str:
        """Write a file; returns its path relative to the process's folder."""
        path = self.place(name)
        (self.folder / path).write_text(text, encoding="utf-8")
        return path

    def place(self, name: str) -> str:
        """A new path for an artefact, relative to the process's folder."""
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
        with self._lock:
            return f"{ARTEFACTS}/{next(self._numbers):04d}-{safe}"

    def close(self) -> None:
        """No event comes after this."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


def _rank() -> str:
    """This process's rank, where it is one of several; else nothing."""
    own = torch.distributed
    if own.is_available() and own.is_initialized():
        return str(own.get_rank())
    return os.environ.get("RANK", "")
