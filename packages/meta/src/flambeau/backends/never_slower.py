"""`mode="never-slower"`: eager until a compiled form has been measured to be faster.

In: a backend. Out: a backend whose graphs run at once. Invariant: compiling, checking and measuring
happen on another thread, on copies of the first call's inputs; a call never waits for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx

from flambeau.backends.benchmark import EAGER, BackendBenchmark, race
from flambeau.backends.fallback import graph_name
from flambeau.backends.request import Backend, Request, named
from flambeau.errors import StageFailure
from flambeau.events.records import RecordCollector
from flambeau.testing.graph_copy import copied_graph
from flambeau.testing.isolated_run import copied

logger = logging.getLogger("flambeau.autotune")


def never_slower(backend: Backend, request: Request) -> Backend:
    """The backend that the user named, compiled anew on another thread, behind eager."""
    return lambda gm, example_inputs: Switching(gm, list(example_inputs), request)


class Switching:
    """A graph that runs as it is until its compiled form was measured to be faster.

    race: the result, when it is there. finished: set when nothing changes any more.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        inputs: list[Any],
        request: Request,
    ) -> None:
        self.race: BackendBenchmark | None = None
        self.finished = threading.Event()
        self._name = graph_name(gm)
        self._run: Callable[..., Any] = gm.forward
        copy, _ = copied_graph(gm)
        arguments = (copy, copied(inputs), request, Surroundings())
        name = f"flambeau compiles {self._name}"
        threading.Thread(target=self._work, args=arguments, name=name, daemon=True).start()

    def __call__(self, *inputs: Any) -> Any:
        return self._run(*inputs)

    def _work(
        self,
        gm: fx.GraphModule,
        inputs: list[Any],
        request: Request,
        surroundings: Surroundings,
    ) -> None:
        from flambeau.backends.registry import resolve  # the table there is made of such modules

        recorder = RecordCollector()
        try:
            with surroundings.again():
                own, _ = copied_graph(gm)
                strict = Request(request.choices, recorder, strict=True, options=request.options)
                compiled = resolve(request.by, strict)(own, inputs)
                self.race = race(gm, {named(request.by): compiled}, inputs, {})
            if self.race.winner != EAGER:
                for record in recorder.report().records:
                    request.recorder.add(record)
                self._run = compiled
            request.recorder.race(str(self.race))
            logger.info("%s", self.race)
        except Exception as error:  # the program does not wait for this, and goes on without it
            request.recorder.fall_back(StageFailure("never-slower", self._name, error, ""))
            for fault in recorder.report().faults:
                request.recorder.fault(fault)
        finally:
            self.finished.set()


class Surroundings:
    """The modes of a thread that decide what a graph is compiled to."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        self.casts = [
            (device, torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        ]

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same modes on this thread."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.casts:
                stack.enter_context(torch.autocast(device, dtype))
            yield
