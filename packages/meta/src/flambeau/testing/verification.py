"""`verify`: compiled graphs checked against eager while the program runs.

In: a backend. Out: a backend whose graphs are compared with eager, and with double precision, in
their first calls. Invariant: a graph that was seen to be wrong is not used again, and the call in
which it was seen gives what eager gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from flambeau.backends.fallback import graph_name
from flambeau.backends.request import Backend, Request
from flambeau.errors import StageFailure, WrongAnswer, warn
from flambeau.events.stage_products import user_line
from flambeau.repro.check import GraphCheck
from flambeau.repro.shrink import first_bad_node
from flambeau.testing.comparison import compared, copied, copied_graph, draws

STAGES = (("aot", "aot_eager"), ("prims", "aot_eager_prims"), ("inductor", "inductor"))


def verified(backend: Backend, request: Request) -> Backend:
    """The backend; its graphs are checked in their first calls."""

    def checked(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kept = copied_graph(gm)  # a backend may rewrite the graph that it is given
        padded = "padding" in gm.meta
        return Verified(kept, backend(gm, example_inputs), request, padded)

    return checked


class Verified:
    """A compiled graph that is checked in its first calls."""

    def __init__(
        self,
        gm: fx.GraphModule,
        compiled: Callable[..., Any],
        request: Request,
        padded: bool = False,
    ) -> None:
        self.padded = padded
        self.gm = gm
        self.by = request.by
        self.choices = request.choices
        self.recorder = request.recorder
        self.left = request.verify
        self._run = compiled
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        if self.left <= 0:
            return self._run(*inputs)
        with self._lock:
            if self.left > 0:
                self.left -= 1
                self._check(inputs)
        return self._run(*inputs)

    def _check(self, inputs: Sequence[Any]) -> None:
        found = compared(self.gm, self._run, inputs)
        if found is None:
            return
        if self.choices.inductor.random == "philox" and draws(self.gm, inputs, [self.gm]):
            self.left = 0
            why = "with random='philox' it draws other numbers than eager"
            warn(f"{graph_name(self.gm)} is not checked: {why}")
            return
        self._run, self.left = self.gm.forward, 0
        stage, line = self._place(inputs)
        name = graph_name(self.gm)
        self.recorder.fall_back(StageFailure(stage, name, WrongAnswer(str(found)), line))
        said = f"{name} is wrong after {stage}: {found}"
        said += f"\n  it starts at {line}" if line else ""
        warn(f"{said}\nThis graph runs eagerly from now on.", WrongAnswer)

    def _place(self, inputs: Sequence[Any]) -> tuple[str, str]:
        """The first stage after which it is wrong, and the line of the first wrong value."""
        given = copied(list(inputs))
        own = isinstance(self.by, str) and self.by in dict(STAGES).values()
        stages: Sequence[tuple[str, Any]] = STAGES if own else [("the backend", self.by)]
        for stage, backend in stages:
            check = GraphCheck(backend, choices=self.choices)
            if check(self.gm, given) is not None:
                node = first_bad_node(self.gm, given, check)
                return stage, "" if node is None else user_line(node)
            if backend == self.by:
                break
        if self.padded:
            return "padding (it is right at the sizes of the call)", ""
        return "compiling (it is right when it is compiled again)", ""
