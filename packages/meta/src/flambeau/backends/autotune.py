"""The fastest of several backends for each graph, by measurement: before it runs, or meanwhile.

In: names of backends. Out: a backend. Invariant: eager always takes part, and nothing wins over it
by less than the noise of the measurement, nor with another answer; a result is kept on disk under
all that decides it. With `mode="never-slower"` a call never waits: compiling and measuring happen
on another thread, on copies of the first call's inputs.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch
from flambeau_inductor.cache import open_values
from torch import fx

from flambeau._torch_compat import pytree
from flambeau.backends.fallback import graph_name
from flambeau.backends.registry import resolve
from flambeau.backends.request import Backend, Request, named
from flambeau.cache.graph_data import CannotKey
from flambeau.cache.graphs import graph_key
from flambeau.choices import Choices
from flambeau.errors import StageFailure
from flambeau.events.records import RecordCollector
from flambeau.testing.comparison import compared, copied, copied_graph

EAGER = "eager"
MARGIN = 0.97
"""What wins over eager takes at most so much of its time."""
ROUNDS, SECONDS = 25, 1.0
"""Most rounds, and most seconds of them all; three rounds are always run."""


@dataclass(frozen=True)
class BackendBenchmark:
    """Seconds of one call (with its backward pass, where there is one) by backend, and the winner.

    out: backends that did not take part to the end, with the reason. kept: the result is of an
    earlier process.
    """

    graph: str
    winner: str
    seconds: Mapping[str, float]
    out: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False

    @property
    def speedup(self) -> float:
        """How many times faster than eager the winner is."""
        return self.seconds[EAGER] / self.seconds[self.winner]

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e6 * s:.0f} us" for name, s in self.seconds.items())
        text = f"{self.graph}: {self.winner} wins, {self.speedup:.2f}x of eager ({times})"
        text += "".join(f"; {name} is out: {why}" for name, why in self.out.items())
        return text + (" [measured in an earlier process]" if self.kept else "")


def race(
    gm: fx.GraphModule,
    forms: Mapping[str, Callable[..., Any]],
    inputs: Sequence[Any],
    out: Mapping[str, str],
) -> BackendBenchmark:
    """Run all forms in turns, eager among them, and compare the medians."""
    gone = dict(out)
    runs = {EAGER: _runner(gm.forward, inputs)}
    for name, form in forms.items():
        difference = None if name == EAGER else compared(gm, form, inputs)
        if difference is not None:
            gone[name] = f"wrong: {difference}"
        elif name != EAGER:
            runs[name] = _runner(form, inputs)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # the first call may still make something
    started = time.perf_counter()
    for number in range(ROUNDS):
        for name, run in runs.items():
            before = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - before)
        if number >= 2 and time.perf_counter() - started > SECONDS:
            break
    medians = {name: median(values) for name, values in times.items()}
    best = min(medians, key=medians.__getitem__)
    winner = best if medians[best] < MARGIN * medians[EAGER] else EAGER
    return BackendBenchmark(type(gm).__name__, winner, medians, gone)


def _runner(form: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], None]:
    """One call on inputs of its own, with its backward pass, ended when the device is done."""
    own = copied(list(inputs))
    wanted = [v for v in own if isinstance(v, torch.Tensor) and v.requires_grad]
    cuda = any(isinstance(v, torch.Tensor) and v.is_cuda for v in own)
    leaves = [value for value in wanted if value.is_leaf]

    def run() -> None:
        results = form(*own)
        outputs = [
            value
            for value in pytree.tree_leaves(results)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if outputs and leaves and torch.is_grad_enabled():
            ones = [torch.ones_like(value) for value in outputs]
            torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
        if cuda:
            torch.cuda.synchronize()

    return run


DEFAULT = (EAGER, "aot_eager", "inductor")
KIND = "backends"
logger = logging.getLogger("flambeau.autotune")
#: a compiled form of a graph, and what was recorded of compiling it
Form = tuple[Callable[..., Any], RecordCollector]


class Autotune:
    """A backend that races others. Give it to `flambeau.compile(backend=...)`.

    backends: names, or callables with a name of their own.
    """

    def __init__(self, *backends: str | Callable[..., Any]) -> None:
        self.backends = backends or DEFAULT

    def __repr__(self) -> str:
        return f"Autotune({', '.join(map(repr, self.backends))})"

    def for_request(self, request: Request) -> Backend:
        """The backend with the choices of one compiled callable."""
        return lambda gm, example_inputs: self._best(gm, list(example_inputs), request)

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._best(gm, list(example_inputs), Request(Choices(), RecordCollector()))

    def _best(self, gm: fx.GraphModule, inputs: list[Any], request: Request) -> Callable[..., Any]:
        values = open_values(request.choices.inductor.cache_dir, KIND)
        try:
            own = graph_key(gm, inputs, request.choices)
            key = json.dumps([own.digest, sorted(self._named())])
        except CannotKey:
            key = None
        known = None if key is None else values.get(key)
        if known is not None:
            found = BackendBenchmark(type(gm).__name__, **known, kept=True)
            forms, _ = self._compiled(gm, inputs, request, [found.winner])
            if found.winner in forms:
                return _chosen(found, forms[found.winner], request)
        forms, out = self._compiled(gm, inputs, request, list(self._named()))
        compiled = {name: call for name, (call, _) in forms.items()}
        found = race(copied_graph(gm), compiled, inputs, out)
        if key is not None:
            values.put(key, {"winner": found.winner, "seconds": found.seconds, "out": found.out})
        return _chosen(found, forms[found.winner], request)

    def _named(self) -> dict[str, str | Callable[..., Any]]:
        named = {b if isinstance(b, str) else str(b.__name__): b for b in self.backends}
        return {EAGER: EAGER, **named}

    def _compiled(
        self, gm: fx.GraphModule, inputs: list[Any], request: Request, names: Sequence[str]
    ) -> tuple[dict[str, Form], dict[str, str]]:
        """The forms that can be had, and why the others cannot."""
        forms: dict[str, Form] = {}
        out: dict[str, str] = {}
        for name in names:
            try:
                forms[name] = _compiled(self._named()[name], gm, inputs, request)
            except Exception as error:  # one that cannot take part does not stop the others
                out[name] = f"{type(error).__name__}: {str(error)[:200]}"
        return forms, out


def _compiled(backend: Any, gm: fx.GraphModule, inputs: list[Any], request: Request) -> Form:
    """A graph compiled by one backend, with a recorder of its own, but for faults."""
    recorder = RecordCollector()
    strict = Request(request.choices, recorder, strict=True, options=request.options)
    try:
        return resolve(backend, strict)(copied_graph(gm), inputs), recorder
    except Exception:
        for fault in recorder.report().faults:
            request.recorder.fault(fault)
        raise


def _chosen(found: BackendBenchmark, form: Form, request: Request) -> Callable[..., Any]:
    call, recorder = form
    for record in recorder.report().records:
        request.recorder.add(record)
    request.recorder.race(str(found))
    logger.info("%s", found)
    return call


def never_slower(backend: Backend, request: Request) -> Backend:
    """The backend that the user named, compiled anew on another thread while eager serves."""
    return lambda gm, example_inputs: Switching(gm, list(example_inputs), request)


class Switching:
    """A graph that runs as it is until its compiled form was measured to be faster.

    race: the result, when it is there. finished: set when nothing changes any more.
    """

    def __init__(self, gm: fx.GraphModule, inputs: list[Any], request: Request) -> None:
        self.race: BackendBenchmark | None = None
        self.finished = threading.Event()
        self._name = graph_name(gm)
        self._run: Callable[..., Any] = gm.forward
        arguments = (copied_graph(gm), copied(inputs), request, modes_of_this_thread())
        name = f"flambeau compiles {self._name}"
        # no daemon: a process that ends while one is within a library is aborted
        threading.Thread(target=self._work, args=arguments, name=name).start()

    def __call__(self, *inputs: Any) -> Any:
        return self._run(*inputs)

    def _work(
        self, gm: fx.GraphModule, inputs: list[Any], request: Request, modes: Sequence[Modes]
    ) -> None:
        try:
            with ExitStack() as entered:
                for mode in modes:
                    entered.enter_context(mode())
                compiled, recorder = _compiled(request.by, gm, inputs, request)
                if not threading.main_thread().is_alive():
                    return  # the program has ended, and waits for this thread
                self.race = race(gm, {named(request.by): compiled}, inputs, {})
            own = RecordCollector() if self.race.winner == EAGER else recorder
            chosen = _chosen(self.race, (compiled, own), request)
            if self.race.winner != EAGER:
                self._run = chosen
        except Exception as error:  # the program does not wait for this, and goes on without it
            request.recorder.fall_back(StageFailure("never-slower", self._name, error, ""))
        finally:
            self.finished.set()


Modes = Callable[[], AbstractContextManager[object]]


def modes_of_this_thread() -> list[Modes]:
    """What decides what a graph is compiled to, to be entered on another thread."""
    modes: list[Modes] = [
        partial(torch.inference_mode, torch.is_inference_mode_enabled()),
        partial(torch.set_grad_enabled, torch.is_grad_enabled()),
    ]
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            modes.append(partial(torch.autocast, device, torch.get_autocast_dtype(device)))
    return modes
