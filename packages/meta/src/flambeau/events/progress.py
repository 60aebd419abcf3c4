"""Progress line of a long compilation.

In: products. Out: one line on a terminal, drawn over itself, gone when the graph is done.
Invariant: nothing is written to what is not a terminal, unless it was asked for, and nothing in the
first seconds of a compilation.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from flambeau.events.bus import EVERYTHING, KernelsProduct, StageProduct

VARIABLE = "FLAMBEAU_PROGRESS"
PATIENCE = 3.0
"""Seconds that a compilation takes before a line appears."""


class Progress:
    """A listener that draws the line. `patience` in seconds; `stream` None is standard error."""

    every_stage = False

    def __init__(self, stream: TextIO | None = None, patience: float = PATIENCE) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.patience = patience
        self.lines = 0
        self._started: dict[int, float] = {}
        self._graphs: dict[int, int] = {}
        self._width = 0
        self._lock = threading.Lock()

    def __call__(self, kind: str, product: object, owner: int) -> None:
        now = time.perf_counter()
        with self._lock:
            if kind == "frame":
                self._started.pop(owner, None)
                self._graphs.pop(owner, None)
                self._draw("")
                return
            started = self._started.setdefault(owner, now)
            if kind == "compiled":
                self._graphs[owner] = self._graphs.get(owner, 0) + 1
            if now - started < self.patience:
                return
            self._draw(self._text(kind, product, now - started, self._graphs.get(owner, 0)))

    def _text(self, kind: str, product: object, seconds: float, graphs: int) -> str:
        doing = kind
        if isinstance(product, StageProduct):
            doing = f"{product.graph} {product.half}: {product.stage} done"
        elif isinstance(product, KernelsProduct):
            doing = f"{product.graph} {product.half}: {product.report.kernels} kernels built"
        return f"flambeau: {doing} ({graphs} graphs, {seconds:.0f} s)"

    def _draw(self, text: str) -> None:
        if not text and not self._width:
            return
        self.stream.write(f"\r{text.ljust(self._width)}" if text else f"\r{' ' * self._width}\r")
        self.stream.flush()
        self._width = len(text)
        self.lines += bool(text)

    def folder(self, graph: str, half: str, owner: int) -> Path | None:
        """A line needs no files."""
        return None


_lock = threading.Lock()


def from_environment() -> None:
    """Show progress on a terminal: FLAMBEAU_PROGRESS=0 turns it off, 1 on everywhere."""
    chosen = os.environ.get(VARIABLE, "")
    wanted = chosen not in ("", "0") or (chosen == "" and sys.stderr.isatty())
    with _lock:
        there = any(isinstance(each, Progress) for each in EVERYTHING)
        if wanted and not there:
            EVERYTHING.add(Progress())
