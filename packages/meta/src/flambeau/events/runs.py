"""Run events: when compiled graphs run, and which memory goes in and out.

In: a backend. Out: one whose graphs are timed as long as somebody wants to know. Invariant: a graph
that is compiled while nobody listens is not wrapped: its calls cost what they did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flambeau.events.bus import EventBus

if TYPE_CHECKING:
    from flambeau.backends.request import Backend, Request  # they import what records events

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


def publish_runs(backend: Backend, request: Request) -> Backend:
    """The backend; whoever the request names is told when its graphs run."""
    told = request.told
    assert told is not None
    return lambda gm, example_inputs: told(backend(gm, example_inputs), type(gm).__name__)


def first_runs(watch: EventBus, compiled: Callable[..., Any], graph: str) -> Callable[..., Any]:
    """A compiled graph of whose first runs whoever listens for runs is told."""
    if not watch.every_run:
        return compiled
    return timed(compiled, graph, lambda run: watch.tell("run", run), MOST_RUNS)


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
