"""Models of libraries at several batch sizes and lengths: results, and graphs for each frame.

    python -m integration_tests.sweep.sizes --out FILE [--only NAME ...] [--family transformers]
        [--minutes 10] [--limit 60] [--every 1] [--backend eager] [--training]

In: cases of the sweep. Out: a line of JSON a model in FILE, and a table. Invariant: a second run
with the same file goes on after the models that have a line; a model takes `limit` seconds at most;
sizes that eager refuses are no case.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from flambeau_capture.api import compiler_of

import flambeau
from benchmarks.zoo.workload import flat
from integration_tests.sweep.cases import Case, Inputs, NotBuilt, Subject, families, runs

BATCHES = (2, 3, 5, 4, 7)
LENGTHS = (16, 11, 23, 9, 32)
IMAGES = (64, 96, 80, 128, 72)
#: graphs of a frame: one of constant sizes, one of open ones
MOST = 2


class TookLong(Exception):
    """A model was not done within its time."""


def _too_long(*_: object) -> None:
    raise TookLong


def resized(inputs: Inputs, batch: int, length: int) -> Inputs:
    """Inputs of other sizes: rows and columns are repeated, or left out."""
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    first = tensors[0]
    rows, tokens = first.shape[0], first.shape[1] if first.dim() in (2, 3) else None

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dim() or value.shape[0] != rows:
            return value
        value = value[torch.arange(batch) % rows]
        if tokens is not None and value.dim() > 1 and value.shape[1] == tokens:
            return value[:, torch.arange(length) % tokens]
        if value.dim() == 4 and value.shape[-1] == value.shape[-2] and tokens is None:
            return torch.nn.functional.interpolate(value, size=(length, length))
        return value

    return {name: one(value) for name, value in inputs.items()}


def shapes(subject: Subject) -> Iterator[tuple[int, int]]:
    """Each batch size with each length, in an order in which both change from call to call."""
    first = next(v for v in subject.inputs[0].values() if isinstance(v, torch.Tensor))
    lengths = IMAGES if first.dim() == 4 else LENGTHS if first.dim() in (2, 3) else (0,)
    for shift in range(len(lengths)):
        for place, batch in enumerate(BATCHES):
            yield batch, lengths[(place + shift) % len(lengths)]


def measured(case: Case, backend: str, trains: bool = False) -> dict[str, Any]:
    """What became of one model."""
    subject = case.build()
    module = subject.module.eval()
    given = [resized(subject.inputs[0], *sizes) for sizes in shapes(subject)]
    given = [inputs for inputs in given if runs(module, inputs) is None]
    own = copy.deepcopy(module).train(trains)
    compiled = flambeau.compile(module.train(trains), backend=backend)
    differing = []
    for inputs in given:
        want, got = (
            _ran(each, model, inputs, trains) for each, model in ((own, own), (compiled, module))
        )
        try:
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            differing.append(f"{_sizes(inputs)}: {str(error)[:200]}")
    report = flambeau.report(compiled)
    frames = _compiled_frames(compiled)
    return {
        "calls": len(given),
        "graphs": report.graphs,
        "breaks": len(report.breaks),
        "most": max(frames.values(), default=0),
        "differing": differing,
        "limit": [text[:300] for text in report.settled if "cache_size_limit" in text],
        "over": {place: count for place, count in frames.items() if count > MOST},
        "narrowed": [text[:300] for text in report.narrowed],
    }


def _ran(call: Any, model: torch.nn.Module, inputs: Inputs, trains: bool) -> list[Any]:
    """The results of a call, in training with the gradients of their sum."""
    torch.manual_seed(0)
    with torch.set_grad_enabled(trains):
        results = flat(call(**inputs))
    sums = [one.float().sum() for one in results if one.requires_grad]
    if not sums:
        return results
    weights = [one for one in model.parameters() if one.requires_grad]
    return [*results, *torch.autograd.grad(sum(sums), weights, allow_unused=True)]


def _compiled_frames(compiled: Any) -> Counter[str]:
    """How many graphs were made of each frame."""
    compiler = compiler_of(compiled)
    made = compiler.records.frames if compiler else ()
    return Counter(
        f"{one.function} ({one.filename.rpartition('/')[2]}:{one.lineno})"
        for one in made
        if one.outcome in ("graph", "break")
    )


def _sizes(inputs: Inputs) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in inputs.values() if isinstance(value, torch.Tensor)]


def name_of(case: Case, trains: bool) -> str:
    return f"{case.family}/{case.name}{', training' if trains else ''}"


def timed(case: Case, backend: str, limit: int, trains: bool = False) -> dict[str, Any]:
    """The same within a time, as a row."""
    started, row = time.monotonic(), {"model": name_of(case, trains)}
    signal.alarm(limit)
    try:
        row |= measured(case, backend, trains)
    except (NotBuilt, TookLong) as error:
        row["left out"] = f"{type(error).__name__}: {error}"[:200]
    except Exception as error:  # a line of the table says so
        row["raised"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
        flambeau.reset()
    return row | {"seconds": round(time.monotonic() - started, 1)}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """What share is right, within two graphs a frame, below the limit; the others by name."""
    ran = [row for row in rows if row.get("calls")]
    few = sum(row["most"] <= MOST for row in ran)
    text = [
        f"{len(ran)} models ran, {len(rows) - len(ran)} were left out. Differing: "
        f"{sum(bool(row['differing']) for row in ran)}. At most {MOST} graphs a frame: {few} "
        f"({few / max(1, len(ran)):.0%}). At the limit: {sum(bool(row['limit']) for row in ran)}.",
        "",
        "| model | calls | graphs | breaks | most of a frame | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in sorted(ran, key=lambda row: (-row["most"], row["model"])):
        told = "; ".join([*row["differing"][:1], *row["over"], *row["narrowed"][:1]])
        said = " ".join(told.split())[:200]
        numbers = " | ".join(str(row[key]) for key in ("calls", "graphs", "breaks", "most"))
        text.append(f"| {row['model']} | {numbers} | {said} |")
    return "\n".join(text) + "\n"


def main() -> None:
    """Measure models until the time is over; print the table of all that were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--family", default="transformers")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--limit", type=int, default=60, help="seconds of a model")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--every", type=int, default=1, help="one of so many models")
    parser.add_argument("--training", action="store_true", help="with gradients")
    said = parser.parse_args()
    lines = said.out.read_text().splitlines() if said.out.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {row["model"] for row in rows}
    signal.signal(signal.SIGALRM, _too_long)
    end = time.monotonic() + 60 * said.minutes
    warnings.simplefilter("ignore")
    with said.out.open("a") as file:
        for place, case in enumerate(families()[said.family](False)):
            wanted = case.name in said.only if said.only else place % said.every == 0
            if not wanted or name_of(case, said.training) in done:
                continue
            if time.monotonic() > end:
                break
            torch.manual_seed(0)
            rows.append(timed(case, said.backend, said.limit, said.training))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    print(table(rows))


if __name__ == "__main__":
    main()
