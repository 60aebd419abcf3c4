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

from flambeau.backends.registry import resolve
from flambeau.backends.request import Request
from flambeau.choices import Choices
from flambeau.errors import StageError
from flambeau.events.records import RecordCollector
from flambeau.testing.comparison import compared, copied, copied_graph


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
            with torch.no_grad():
                for node, value in values_of(gm, inputs).items():
                    node.meta["val"] = value
            info = flambeau_aot.GraphInfo("inference", "repro")
            options = self.choices.comparable().inductor
            half = flambeau_inductor.compile(gm, list(inputs), info, options)
            return lambda *given: half(list(given))
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
        found = compared(gm, compiled, inputs, self.backend != HALF) if self.accuracy else None
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


def failure_of(error: BaseException) -> GraphFailure:
    """The failure that an exception is: of its cause, where a stage only passed it on."""
    cause = error.failure.error if isinstance(error, StageError) else error
    return GraphFailure(type(cause).__name__, str(cause)[:400])


class _ValueKeeper(fx.Interpreter):
    """Keeps a copy of every value as it was when it was made."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.kept: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.kept[n] = copied(value)
        return value


def values_of(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """The value of each node for these inputs."""
    run = _ValueKeeper(gm)
    run.run(*copied(list(inputs)))
    return run.kept
