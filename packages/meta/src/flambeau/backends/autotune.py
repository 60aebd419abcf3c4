"""`backend="autotune"`: the fastest of several backends for each graph, by measurement.

In: names of backends. Out: a backend. Invariant: eager always takes part, so that nothing becomes
slower than it was; a result is kept on disk under all that decides it, and used from then on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from flambeau_inductor.cache import open_values
from torch import fx

from flambeau.backends.benchmark import EAGER, BackendBenchmark, race
from flambeau.backends.request import Backend, Request
from flambeau.cache.graph_key import graph_key
from flambeau.cache.graph_text import CannotKey
from flambeau.events.records import RecordCollector
from flambeau.testing.graph_copy import copied_graph

DEFAULT = (EAGER, "aot_eager", "inductor")
KIND = "backends"
logger = logging.getLogger("flambeau.autotune")


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

        def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            return self._best(gm, list(example_inputs), request)

        return backend

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        from flambeau.choices import Choices  # where it is used without `flambeau.compile`

        return self._best(gm, list(example_inputs), Request(Choices(), RecordCollector()))

    def _best(self, gm: fx.GraphModule, inputs: list[Any], request: Request) -> Callable[..., Any]:
        values = open_values(request.choices.inductor.cache_dir, KIND)
        key = self._key(gm, inputs, request)
        known = None if key is None else values.get(key)
        if known is not None:
            found = BackendBenchmark(
                type(gm).__name__, known["winner"], known["seconds"], known["out"], True
            )
            form, _ = self._compiled(gm, inputs, request, [found.winner])
            if found.winner in form:
                return self._chosen(found, form[found.winner], request)
        forms, out = self._compiled(gm, inputs, request, list(self._named()))
        kept, _ = copied_graph(gm)
        found = race(kept, {n: f[0] for n, f in forms.items()}, inputs, out)
        if key is not None:
            told = {"winner": found.winner, "seconds": found.seconds, "out": found.out}
            values.put(key, told)
        return self._chosen(found, forms[found.winner], request)

    def _chosen(
        self,
        found: BackendBenchmark,
        form: tuple[Callable[..., Any], RecordCollector],
        request: Request,
    ) -> Callable[..., Any]:
        call, recorder = form
        for record in recorder.report().records:
            request.recorder.add(record)
        request.recorder.race(str(found))
        logger.info("%s", found)
        return call

    def _named(self) -> dict[str, str | Callable[..., Any]]:
        named = {b if isinstance(b, str) else str(b.__name__): b for b in self.backends}
        return {EAGER: EAGER, **named}

    def _compiled(
        self, gm: fx.GraphModule, inputs: list[Any], request: Request, names: Sequence[str]
    ) -> tuple[dict[str, tuple[Callable[..., Any], RecordCollector]], dict[str, str]]:
        """The forms that can be had, and why the others cannot."""
        from flambeau.backends.registry import resolve  # the table there names this backend

        forms: dict[str, tuple[Callable[..., Any], RecordCollector]] = {}
        out: dict[str, str] = {}
        for name in names:
            recorder = RecordCollector()
            own = Request(request.choices, recorder, strict=True)
            copy, _ = copied_graph(gm)
            try:
                forms[name] = resolve(self._named()[name], own)(copy, inputs), recorder
            except Exception as error:  # one that cannot take part does not stop the others
                out[name] = f"{type(error).__name__}: {str(error)[:200]}"
                for fault in recorder.report().faults:
                    request.recorder.fault(fault)
        return forms, out

    def _key(self, gm: fx.GraphModule, inputs: list[Any], request: Request) -> str | None:
        try:
            key = graph_key(gm, inputs, request.choices)
        except CannotKey:
            return None
        return json.dumps([key.digest, sorted(self._named())])


def autotune(request: Request) -> Backend:
    """The built-in one: eager, aot_eager, inductor."""
    return Autotune().for_request(request)
