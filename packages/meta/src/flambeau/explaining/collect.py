"""Collects the products of one run, for an explanation.

In: products, and the runs of compiled graphs. Out: facts by graph. Invariant: only plain data and
sums are kept, no tensor and no compilation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import fx

from flambeau.backends.wrapper import Backend, in_place_of
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
    """Wraps a backend, and notes when its graphs run and which memory goes in and out."""

    def __init__(self) -> None:
        self.runs: list[GraphRun] = []

    def around(self, backend: Backend) -> Backend:
        """The backend; its compiled graphs are timed."""

        def made(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            return timed(backend(gm, example_inputs), type(gm).__name__, self.runs.append)

        return in_place_of(backend, made)
