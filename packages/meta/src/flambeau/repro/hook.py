"""Hook around a backend that turns failures into scripts.

In: a backend and settings. Out: a backend that gives the same. Invariant: a fault of making a
script is a warning; the program is compiled as it would be without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flambeau_aot
import torch
from torch import fx

from flambeau.backends.composed import classify
from flambeau.backends.fallback import graph_name
from flambeau.backends.request import Backend, Request
from flambeau.choices import Choices
from flambeau.errors import warn
from flambeau.repro.check import HALF, GraphCheck, GraphFailure
from flambeau.repro.script import Script, write_script
from flambeau.repro.settings import Settings
from flambeau.repro.shrink import shrink
from flambeau.testing.isolated_run import copied


def with_repro(backend: Backend, request: Request) -> Backend:
    """The backend; graphs that fail leave a script in the folder of the settings."""
    settings = request.repro
    assert settings is not None

    def watched(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        inputs = list(example_inputs)
        early = _written_early(gm, inputs, request.by, settings) if settings.level == 3 else None
        try:
            _look(gm, inputs, request.by, request.choices, settings)
        except Exception as error:  # a tool that fails must not end the program it looks at
            said = f"no script was made of {graph_name(gm)}: {type(error).__name__}: {error}"
            warn(said)
        compiled = backend(gm, example_inputs)
        if early is not None:
            early.path.unlink(missing_ok=True)
        return compiled

    return watched


def _look(
    gm: fx.GraphModule,
    inputs: list[Any],
    by: str | Callable[..., Any],
    choices: Choices,
    settings: Settings,
) -> None:
    check = GraphCheck(by, accuracy=settings.level == 4, choices=choices)
    failure = check(gm, inputs)
    if failure is None:
        return
    graph, given = gm, copied(inputs)
    if settings.after == "aot":
        half = _failing_half(gm, inputs, choices, failure)
        if half is None:
            said = f"{graph_name(gm)} fails ({failure}), but neither of its halves does alone"
            warn(said)
        else:
            graph, given, failure, check = half
    script = make_script(graph, given, failure, check, settings, graph_name(gm))
    warn(f"{graph_name(gm)} fails ({failure}): see {script.path} ({script.operations} operations)")


def make_script(
    gm: fx.GraphModule,
    inputs: list[Any],
    failure: GraphFailure,
    check: GraphCheck,
    settings: Settings,
    name: str,
) -> Script:
    """Write the script of a graph that fails, shrunk where the level says so."""
    path = settings.place(name)
    if settings.level == 1:
        return write_script(path, gm, inputs, failure, check.backend, check, _advice(path))
    smaller = shrink(gm, inputs, check)
    if smaller is not None:
        gm, inputs, failure = smaller.gm, smaller.inputs, smaller.failure
    return write_script(path, gm, inputs, failure, check.backend, check)


def _written_early(
    gm: fx.GraphModule, inputs: list[Any], by: str | Callable[..., Any], settings: Settings
) -> Script:
    """A script that is there even when compiling ends the process."""
    path = settings.place(graph_name(gm))
    failure = GraphFailure("ended", "the process ended while this graph was compiled")
    return write_script(path, gm, inputs, failure, by, None, _advice(path))


def _failing_half(
    gm: fx.GraphModule, inputs: list[Any], choices: Choices, failure: GraphFailure
) -> tuple[fx.GraphModule, list[Any], GraphFailure, GraphCheck] | None:
    """The half that fails when the inductor is given it alone, with inputs of its own."""
    check = GraphCheck(HALF, accuracy=failure.kind == "wrong", choices=choices)
    for half in halves_of(gm, inputs):
        given = [_real(node.meta["val"], n) for n, node in enumerate(_placeholders(half))]
        found = check(half, given)
        if found is not None:
            return half, given, found, check
    return None


def halves_of(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[fx.GraphModule]:
    """The graphs of primitives that the inductor would be given, forward first."""
    import flambeau_prims  # the table takes a moment to make

    seen: list[fx.GraphModule] = []

    def note(half: fx.GraphModule, examples: list[Any], info: flambeau_aot.GraphInfo) -> Any:
        seen.append(half)
        return flambeau_aot.run_as_is(half, examples, info)

    options = flambeau_aot.Options(classify=classify)
    table = flambeau_prims.decompositions()
    flambeau_aot.compile(gm, copied(list(inputs)), note, decompositions=table, options=options)
    return seen


def _placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _real(value: Any, seed: int) -> Any:
    from flambeau.repro.script import drawn

    if not isinstance(value, torch.Tensor):
        return int(value) if isinstance(value, torch.SymInt) else value
    return drawn(value.shape, value.stride(), value.dtype, seed, str(value.device))


def _advice(path: Path) -> str:
    return f"To make it smaller: python -m flambeau minify {path}"
