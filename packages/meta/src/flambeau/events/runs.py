"""When compiled graphs run, and which memory goes in and out.

In: a backend. Out: one whose graphs are timed as long as somebody wants to know. Invariant: a graph
that is compiled while nobody listens is not wrapped: its calls cost what they did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau.backends.wrapper import Backend, in_place_of
from flambeau.events.bus import EventBus

MOST_RUNS = 20
"""Runs of each graph that listeners are told of: a long run stays as fast as it was."""


@dataclass(frozen=True)
class GraphRun:
    """One call of a compiled graph, by `time.perf_counter`; tensors as (address, bytes)."""

    graph: str
    started: float
    ended: float
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


def told_of_runs(backend: Backend, watch: EventBus) -> Backend:
    """The backend; whoever listens for runs is told the first ones of each graph."""

    def made(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled = backend(gm, example_inputs)
        if not watch.every_run:
            return compiled
        return timed(compiled, type(gm).__name__, lambda run: watch.tell("run", run), MOST_RUNS)

    return in_place_of(backend, made)


def timed(
    compiled: Callable[..., Any],
    graph: str,
    note: Callable[[GraphRun], None],
    most: int | None = None,
) -> Callable[..., Any]:
    """A compiled graph of which `note` is given each run, or the first `most`."""
    left = [most]

    def call(*given: Any) -> Any:
        if left[0] is not None:
            if left[0] <= 0:
                return compiled(*given)
            left[0] -= 1
        started = time.perf_counter()
        results = compiled(*given)
        ended = time.perf_counter()
        note(GraphRun(graph, started, ended, _memory(given), _memory(results)))
        return results

    return call


def _memory(values: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Where each tensor is, and how many bytes it has."""
    return tuple(
        (value.data_ptr(), value.numel() * value.element_size())
        for value in values
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    )
