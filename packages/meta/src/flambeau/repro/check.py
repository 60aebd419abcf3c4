"""Oracle of the minifier: does this graph still fail?

In: a graph, inputs, the name of a backend. Out: a `GraphFailure`, or None. Invariant: a graph is
compared with itself, run by torch: what it computes has no part in the judgement.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import flambeau_aot
import flambeau_inductor
import torch
from torch import fx

from flambeau.backends import resolve
from flambeau.backends.request import Request
from flambeau.choices import Choices
from flambeau.errors import StageError
from flambeau.events.records import RecordCollector
from flambeau.testing.comparison import Difference, difference
from flambeau.testing.isolated_run import copied, copied_graph, in_double, observe


@dataclass(frozen=True)
class GraphFailure:
    """How a graph fails: `kind` is `wrong`, or the class of what was raised."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class GraphCheck:
    """Compiles graphs in one way, and compares what they give with running them by torch.

    backend: a name, or a callable; `inductor half` gives the graph to the inductor alone, as
    ahead-of-time autograd would. accuracy: compare results too, not only whether it compiles.
    """

    backend: str | Callable[..., Any]
    accuracy: bool = True
    choices: Choices = field(default_factory=Choices)

    def compile(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile from nothing, raising what goes wrong."""
        gm = copied_graph(gm)
        if self.backend == HALF:
            return _half(gm, inputs, self.choices.comparable())
        recorder = RecordCollector()
        recorder.watch.tailor = lambda options, graph, half: options  # nothing from the disk
        request = Request(self.choices.comparable(), recorder, strict=True)
        made = resolve(found_backend(self.backend), request)
        compiled: Callable[..., Any] = made(gm, list(inputs))
        return compiled

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> GraphFailure | None:
        """How the graph fails, or None."""
        try:
            compiled = self.compile(gm, copied(list(inputs)))
        except Exception as error:  # what a compiler raises is what is looked for
            return failure_of(error)
        return self.of_compiled(gm, compiled, inputs) if self.accuracy else None

    def of_compiled(
        self, gm: fx.GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any]
    ) -> GraphFailure | None:
        """Compare a compiled graph with the graph, on these inputs."""
        found = compared(gm, compiled, inputs, backward=self.backend != HALF)
        return None if found is None else GraphFailure("wrong", str(found))


HALF = "inductor half"


def spelled(backend: str | Callable[..., Any]) -> str:
    """A backend's name, or `module:name` for a callable; a script can find it by that."""
    if isinstance(backend, str):
        return backend
    module = getattr(backend, "__module__", type(backend).__module__)
    return f"{module}:{getattr(backend, '__qualname__', type(backend).__qualname__)}"


def found_backend(backend: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """What a spelling stands for. Raises what importing it raises."""
    if not isinstance(backend, str) or ":" not in backend:
        return backend
    module, _, name = backend.partition(":")
    found: Callable[..., Any] = attrgetter(name)(importlib.import_module(module))
    return found


def compared(
    gm: fx.GraphModule,
    compiled: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    backward: bool = True,
) -> Difference | None:
    """The first difference between a compiled graph and the graph run by torch."""
    expected = observe(gm, inputs, modules=[gm], backward=backward)
    got = observe(compiled, inputs, modules=[gm], backward=backward)
    exact = in_double(gm, inputs, modules=[gm]) if backward else None
    return difference(expected, got, exact)


def failure_of(error: BaseException) -> GraphFailure:
    """The failure that an exception is: of its cause, where a stage only passed it on."""
    cause = error.failure.error if isinstance(error, StageError) else error
    return GraphFailure(type(cause).__name__, str(cause)[:400])


def _half(gm: fx.GraphModule, inputs: Sequence[Any], choices: Choices) -> Callable[..., Any]:
    with_values(gm, inputs)
    info = flambeau_aot.GraphInfo("inference", "repro")
    compiled = flambeau_inductor.compile(gm, list(inputs), info, choices.inductor)

    def call(*given: Any) -> Any:
        return compiled(list(given))

    return call


class _NodeValues(fx.Interpreter):
    """Notes each node's value, real, under `val`."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        n.meta["val"] = value
        return value


def with_values(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Give each node the value that it has for these inputs as its metadata."""
    with torch.no_grad():
        _NodeValues(gm).run(*copied(list(inputs)))
