"""Bisection over the graphs that another backend compiles.

In: a program whose captured graphs are right, and wrong with a backend. Out: a `Verdict`.
Invariant: what is named was seen to fail alone, with the backend, as it did in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from flambeau.backends import resolve
from flambeau.backends.fallback import graph_name, with_fallback
from flambeau.backends.request import Backend, Request
from flambeau.bisecting.search import first_bad
from flambeau.bisecting.trials import MakeBackend, TrialProgram
from flambeau.bisecting.verdict import Verdict
from flambeau.events.stage_products import user_lines_of
from flambeau.repro.check import GraphCheck, spelled
from flambeau.repro.shrink import shrink
from flambeau.testing.comparison import Difference
from flambeau.testing.graph_copy import copied_graph
from flambeau.testing.isolated_run import copied

Given = str | Callable[..., Any]
Seen = list[tuple[fx.GraphModule, list[Any]]]


def limited(backend: Given, count: int | None, seen: Seen) -> MakeBackend:
    """A backend that compiles the first `count` graphs and runs the others as they are."""

    def make(request: Request) -> Backend:
        inner = resolve(backend, request)
        seen.clear()

        def first(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            seen.append((copied_graph(gm)[0], copied(list(inputs))))
            if count is not None and len(seen) > count:
                return gm.forward
            compiled: Callable[..., Any] = inner(gm, list(inputs))
            return compiled

        return with_fallback(first, request, "backend")

    return make


def blame_backend(program: TrialProgram, found: Difference, backend: Given, count: int) -> Verdict:
    """The first graph with which it goes wrong, shrunk to the operations that it takes."""
    seen: Seen = []

    def is_bad(n: int) -> bool:
        how = f"the first {n} of {count} graphs by {spelled(backend)}"
        return program.attempt(how, limited(backend, n, seen)) is not None

    place = first_bad(count, is_bad)
    if place is None:
        return Verdict("backend", step="backend", name=spelled(backend))
    is_bad(place)  # once more, for the graph as it was in this run
    gm, inputs = seen[place - 1]
    avoid = {"backend": "eager"}
    left = shrink(gm, inputs, GraphCheck(backend))
    if left is None:  # right alone: it takes the program around it
        return Verdict(
            "backend", step="graph", name=spelled(backend), graph=graph_name(gm), avoid=avoid
        )
    nodes = [node for node in left.gm.graph.nodes if node.op.startswith("call")]
    named = ", ".join(_target(node) for node in nodes)
    lines = tuple(dict.fromkeys(user_lines_of(nodes).values()))
    return Verdict(
        "backend",
        step="operations",
        name=f"{named} by {spelled(backend)}",
        graph=graph_name(gm),
        lines=(str(left.failure), *lines),
        avoid=avoid,
    )


def _target(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")
