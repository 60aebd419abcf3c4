"""Hook around a backend that turns failures into scripts, as the environment says.

In: a backend; variables of the environment. Out: a backend that gives the same. Invariant: nothing
is written unless FLAMBEAU_REPRO_AFTER is set; a fault of making a script is a warning, and the
program is compiled as it would be without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import flambeau_aot
import torch
from torch import fx

from flambeau.backends.composed import classify
from flambeau.backends.fallback import graph_name
from flambeau.backends.request import Backend, Request
from flambeau.errors import UnknownName, warn
from flambeau.repro.check import HALF, GraphCheck, GraphFailure
from flambeau.repro.script import drawn_like, write_script
from flambeau.repro.shrink import shrink
from flambeau.testing.comparison import copied
from flambeau.variables import REPRO_AFTER, BadSetting

LEVEL = "FLAMBEAU_REPRO_LEVEL"
DIR = "FLAMBEAU_REPRO_DIR"
STAGES = ("capture", "aot")


@dataclass(frozen=True)
class Settings:
    """What becomes a script.

    after: `capture`: graphs as they were captured, for any backend; `aot`: the halves that the
    inductor is given. level: 1: a graph that cannot be compiled is written as it is; 2: and shrunk
    (the default); 3: every graph is written before it is compiled, for what ends the process, and
    removed when that went well; 4: what compiled code gives is compared with eager and double
    precision, and a wrong graph is written and shrunk; after capture, so are whole calls. folder:
    where scripts go.
    """

    after: str
    level: int = 2
    folder: Path = Path("flambeau-repro")

    @property
    def looks_at_calls(self) -> bool:
        """Whether whole calls are compared too, for guards that are missing."""
        return self.after == "capture" and self.level == 4

    def place(self, name: str) -> Path:
        """A path for a script that is not there yet; the folder is made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        head = "".join(c if c.isalnum() else "_" for c in name).strip("_")
        for number in range(10_000):
            path = self.folder / f"{head}_{os.getpid()}_{number}.py"
            if not path.exists():
                return path
        raise FileExistsError(f"{self.folder} is full of scripts")

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings | None:
        """The settings, or None where FLAMBEAU_REPRO_AFTER is not set.

        Raises BadSetting and UnknownName for values that mean nothing.
        """
        env = os.environ if environment is None else environment
        after = env.get(REPRO_AFTER, "")
        if not after:
            return None
        if after not in STAGES:
            raise UnknownName(REPRO_AFTER, after, STAGES)
        level = env.get(LEVEL, "") or "2"
        if level not in ("1", "2", "3", "4"):
            raise BadSetting(f"{LEVEL} is 1, 2, 3 or 4, not {level!r}")
        return Settings(after, int(level), Path(env.get(DIR) or "flambeau-repro"))


def with_repro(backend: Backend, request: Request) -> Backend:
    """The backend; graphs that fail leave a script in the folder of the settings."""
    settings = request.repro
    assert settings is not None

    def watched(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        inputs, path = list(example_inputs), None
        if settings.level == 3:  # a script that is there even when compiling ends the process
            path = settings.place(graph_name(gm))
            failure = GraphFailure("ended", "the process ended while this graph was compiled")
            write_script(path, gm, inputs, failure, request.by, command=_advice(path))
        try:
            _look(gm, inputs, request, settings)
        except Exception as error:  # a tool that fails must not end the program it looks at
            said = f"no script was made of {graph_name(gm)}: {type(error).__name__}: {error}"
            warn(said)
        compiled = backend(gm, example_inputs)
        if path is not None:
            path.unlink(missing_ok=True)
        return compiled

    return watched


def _look(gm: fx.GraphModule, inputs: list[Any], request: Request, settings: Settings) -> None:
    """Write the script of a graph that fails, shrunk where the level says so."""
    name = graph_name(gm)
    check = GraphCheck(request.by, accuracy=settings.level == 4, choices=request.choices)
    failure = check(gm, inputs)
    if failure is None:
        return
    inputs = copied(inputs)
    if settings.after == "aot":
        alone = replace(check, backend=HALF, accuracy=failure.kind == "wrong")
        half = _failing_half(gm, inputs, alone)
        if half is None:
            warn(f"{name} fails ({failure}), but neither of its halves does alone")
        else:
            gm, inputs, failure = half
            check = alone
    path = settings.place(name)
    command = _advice(path) if settings.level == 1 else ""
    smaller = None if settings.level == 1 else shrink(gm, inputs, check)
    if smaller is not None:
        gm, inputs, failure = smaller.gm, list(smaller.inputs), smaller.failure
    script = write_script(path, gm, inputs, failure, check.backend, check, command)
    warn(f"{name} fails ({failure}): see {script.path} ({script.operations} operations)")


def _failing_half(
    gm: fx.GraphModule, inputs: list[Any], check: GraphCheck
) -> tuple[fx.GraphModule, list[Any], GraphFailure] | None:
    """The half that fails when the inductor is given it alone, with inputs of its own."""
    import flambeau_prims  # the table takes a moment to make

    halves: list[fx.GraphModule] = []

    def note(half: fx.GraphModule, examples: list[Any], info: flambeau_aot.GraphInfo) -> Any:
        halves.append(half)
        return flambeau_aot.run_as_is(half, examples, info)

    options = flambeau_aot.Options(classify=classify)
    table = flambeau_prims.decompositions()
    flambeau_aot.compile(gm, copied(inputs), note, decompositions=table, options=options)
    for half in halves:
        values = [node.meta["val"] for node in half.graph.find_nodes(op="placeholder")]
        given = [
            int(value) if isinstance(value, torch.SymInt) else drawn_like(value, number)
            for number, value in enumerate(values)
        ]
        found = check(half, given)
        if found is not None:
            return half, given, found
    return None


def _advice(path: Path) -> str:
    return f"To make it smaller: python -m flambeau minify {path}"
