"""Collects the products of one run, for an explanation.

In: products, and the runs of compiled graphs. Out: facts by graph. Invariant: only plain data and
sums are kept, no tensor and no compilation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from flambeau.backends.request import Backend
from flambeau.products import HalfFacts, facts_of
from flambeau.watching import StageProduct


@dataclass(frozen=True)
class Run:
    """One call of a compiled graph; sizes are those of the tensors' elements."""

    graph: str
    started: float
    ended: float
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


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


class Clock:
    """Wraps a backend, and notes when its graphs run and which memory goes in and out."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def around(self, backend: Backend) -> Backend:
        """The backend; its compiled graphs are timed."""

        def timed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            compiled = backend(gm, example_inputs)
            name = type(gm).__name__

            def call(*given: Any) -> Any:
                started = time.perf_counter()
                results = compiled(*given)
                ended = time.perf_counter()
                self.runs.append(Run(name, started, ended, _memory(given), _memory(results)))
                return results

            return call

        timed.__name__ = getattr(backend, "__name__", "backend")
        timed.__dict__.update(getattr(backend, "__dict__", {}))
        return timed


def _memory(values: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Where each tensor is, and how many bytes it has."""
    return tuple(
        (value.data_ptr(), value.numel() * value.element_size())
        for value in values
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    )
