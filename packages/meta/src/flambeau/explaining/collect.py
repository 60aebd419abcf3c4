"""Collection of one run's products, for an explanation.

In: products, and the runs of compiled graphs. Out: facts by graph. Invariant: only plain data and
sums are kept, no tensor and no compilation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flambeau.events.bus import StageProduct
from flambeau.events.runs import GraphRun, timed
from flambeau.events.stage_products import HalfFacts, facts_of


class Collector:
    """A listener that keeps the facts of each half."""

    every_stage = True

    def __init__(self) -> None:
        self.halves: list[HalfFacts] = []
        self._lock = threading.Lock()

    def __call__(self, kind: str, product: object, owner: int) -> None:
        if isinstance(product, StageProduct) and product.stage == "wrap":
            facts = facts_of(product.work, product.graph, product.half)
            with self._lock:
                self.halves.append(facts)

    def folder(self, graph: str, half: str, owner: int) -> Path | None:
        """The inductor's files are not needed."""
        return None


class RunTimer:
    """Notes when compiled graphs run and which memory goes in and out."""

    def __init__(self) -> None:
        self.runs: list[GraphRun] = []

    def around(self, compiled: Callable[..., Any], graph: str) -> Callable[..., Any]:
        """The compiled graph, timed."""
        return timed(compiled, graph, self.runs.append)
