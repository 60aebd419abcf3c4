"""Bisection over the passes and decompositions of ahead-of-time autograd.

In: a program that is right captured, and wrong after these stages. Out: a `Verdict`. Invariant: a
decomposition is blamed by adding them one by one in the order in which the program needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import flambeau_aot
import flambeau_prims
from torch import fx

from flambeau.backends.composed import classify
from flambeau.backends.fallback import graph_name, with_fallback
from flambeau.backends.request import Backend, Request
from flambeau.bisecting.search import first_bad
from flambeau.bisecting.trials import MakeBackend, TrialProgram
from flambeau.bisecting.verdict import Verdict
from flambeau.testing.comparison import Difference

Table = Mapping[Any, Callable[..., Any]]


def through(decompositions: Table, *, simplify: bool = True, save_all: bool = False) -> MakeBackend:
    """A backend that runs what ahead-of-time autograd makes, with these choices."""

    def make(request: Request) -> Backend:
        def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            name = graph_name(gm)
            options = replace(
                request.choices.aot,
                name=name if name.isidentifier() else "graph",
                classify=classify,
                simplify=simplify,
            )
            given: dict[str, Any] = {"partition": _save_all} if save_all else {}
            return flambeau_aot.compile(
                gm,
                inputs,
                flambeau_aot.run_as_is,
                decompositions=decompositions,
                options=options,
                **given,
            )

        return with_fallback(backend, request, "aot")

    return make


def _save_all(joint: Any, options: Any) -> Any:
    return flambeau_aot.save_all(joint, options)


def blame_aot(program: TrialProgram, found: Difference) -> Verdict:
    """The pass without which it is right; else tracing itself."""
    ways: tuple[tuple[str, str, MakeBackend], ...] = (
        ("simplify", "without simplifying", through({}, simplify=False)),
        ("partition", "saving everything for backward", through({}, save_all=True)),
    )
    for name, how, backend in ways:
        if program.attempt(how, backend) is None:
            avoid = {"options": {"aot.simplify": False}} if name == "simplify" else {}
            return Verdict("aot", step="pass", name=name, avoid=avoid)
    return Verdict("aot", step="pass", name="trace", avoid={"backend": "eager"})


def blame_prims(program: TrialProgram, found: Difference) -> Verdict:
    """The first decomposition with which it goes wrong."""
    table = flambeau_prims.decompositions()
    used: dict[Any, str] = {}
    program.attempt("again, noting the decompositions", through(_noting(table, used)))
    order = list(used)

    def with_first(count: int) -> bool:
        some = {op: table[op] for op in order[:count]}
        return program.attempt(f"{count} of {len(order)} decompositions", through(some)) is not None

    number = first_bad(len(order), with_first)
    if number is None:
        return Verdict("prims", step="decompositions", name="(only all of them together)")
    op = order[number - 1]
    avoid = {"backend": "aot_eager"}
    return Verdict("prims", step="decomposition", name=str(op), lines=(used[op],), avoid=avoid)


def _noting(table: Table, used: dict[Any, str]) -> Table:
    """The table; what is used of it is noted in order."""

    def noted(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = rule(*args, **kwargs)
            if result is not NotImplemented:
                module = str(getattr(rule, "__module__", ""))
                used.setdefault(op, f"{module}.{getattr(rule, '__qualname__', rule)}")
            return result

        return run

    return {op: noted(op, rule) for op, rule in table.items()}
