"""Races of templates against the library, case by case: what the tools that run them share.

In: cases, how one is measured and how its row reads. Out: a line a case, the rows as JSON, an exit
status. Invariant: what a race came to is measured in this process, whatever is kept on disk;
compiled kernels that Triton keeps are used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import flambeau_prims
from flambeau_inductor import Options
from flambeau_inductor.autotune import BenchmarkOutcome, Budget, CudaClock, Tuner
from flambeau_inductor.cache import KeptValues, open_store, open_values
from flambeau_inductor.compile import STAGES
from flambeau_inductor.compile_state import Compilation
from flambeau_inductor.info import ALONE
from flambeau_inductor.kernels.triton_binaries import launch_library
from flambeau_inductor.options import settled
from flambeau_inductor.templates.selection.select import LIBRARY, machine, select
from flambeau_inductor.tuning import machine_of
from torch import Tensor, fx

LEAST_ERROR = 1e-2
"""Of a result in half precision, from which on it is wrong."""


class Measured(Protocol):
    """A row of a table: a dataclass with the error of what was computed."""

    error: float


Case = TypeVar("Case")
Found = TypeVar("Found", bound=Measured)


class Fresh:
    """Finds nothing, so that everything is measured; keeps it for the compile that follows."""

    def __init__(self, values: KeptValues) -> None:
        self._values = values

    def get(self, key: str) -> None:
        return None

    def put(self, key: str, value: Any) -> bool:
        return self._values.put(key, value)


def outcome(fn: Callable[..., Any], inputs: list[Tensor]) -> BenchmarkOutcome:
    """What the race of the product in `fn` came to."""
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), inputs)
    fresh = Options(skip_passes=("select_templates", "add_rows_sorted", "join_launches"))
    work = Compilation(gm, inputs, ALONE, options=settled(fresh))
    for name, product, stage in STAGES:
        if name == "generate":
            break
        setattr(work, product, stage(work))
    values = open_values(work.options.cache_dir, "autotune")
    tuner = Tuner(Fresh(values), CudaClock(0), Budget(30.0))
    described = machine_of(0).described
    library = launch_library(work.options, open_store(work.options.cache_dir))
    select(work.scheduled(), tuner, machine(0), described=described, library=library)
    return next(o for key, o in tuner.outcomes.items() if key.startswith("product"))


def best(found: BenchmarkOutcome) -> tuple[float, str]:
    """The template's best seconds, and with which tile."""
    return min((s, name) for name, s in found.seconds.items() if name != LIBRARY)


def first(found: BenchmarkOutcome) -> float:
    """The template's seconds with the tile that the model of the machine prefers."""
    return next(s for name, s in found.seconds.items() if name != LIBRARY)


def failures(failed: Mapping[str, str]) -> str:
    """What to say of tiles that could not be run."""
    return "".join(f", {name} failed: {why[:60]}" for name, why in failed.items())


def parser(doc: str | None) -> argparse.ArgumentParser:
    """What every race is told."""
    made = argparse.ArgumentParser(description=doc)
    made.add_argument("--json", type=Path, help="keep the rows here")
    made.add_argument("--cases", type=int, nargs="*", help="positions in CASES")
    return made


def raced(
    given: argparse.Namespace,
    cases: Sequence[Case],
    measure: Callable[[Case], Found],
    told: Callable[[Found], str],
) -> int:
    """Measure the cases that are asked for, a line each; 1 where one is wrong, else 0."""
    rows: list[Any] = []
    wrong = False
    for number, case in enumerate(cases):
        if given.cases and number not in given.cases:
            continue
        row = measure(case)
        rows.append(row)
        wrong |= not row.error < LEAST_ERROR
        print(told(row), flush=True)
        if given.json is not None:  # what there is, should the time be over
            given.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    return int(wrong)
