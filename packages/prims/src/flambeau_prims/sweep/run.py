"""The sweep over operators and dtypes.

In: names, dtypes, a slice of the matrix. Out: verdicts, and texts of them.
Invariant: a slice n of m takes every operation at those of its dtypes that fall to it, so that m
slices together are the whole matrix and each has every operation.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.sweep import database
from flambeau_prims.sweep.judge import SweepVerdict, judge
from flambeau_prims.sweep.measure import DTYPES
from flambeau_prims.sweep.watch import WithWriting

MEANINGS = {
    "right": "equal to eager, by primitives alone",
    "leaf": "equal to eager, with declared leaves among the primitives",
    "different": "differs, for a reason that is written down",
    "refused": "eager itself takes none of the samples",
    "wrong": "none of these",
}

TAKEN = {**DTYPES, "float16": torch.float16}
"""The dtypes that a plan may name."""


@dataclass(frozen=True)
class SweepPlan:
    """What to run: operations whose name `pattern` finds, at `dtypes`; `part` of `parts`;
    `values` of the tensors: the samples' or others (`database.VALUES`)."""

    pattern: str = ""
    dtypes: tuple[str, ...] = tuple(DTYPES)
    samples: int = 6
    part: int = 0
    parts: int = 1
    values: str = "samples"


def pairs(plan: SweepPlan) -> Iterator[tuple[str, str]]:
    """(operation, dtype) of a plan, in a fixed order."""
    wanted = re.compile(plan.pattern)
    for number, (name, entry) in enumerate(sorted(database.by_name().items())):
        if not wanted.search(name):
            continue
        taken = [d for d in plan.dtypes if database.takes(entry, TAKEN[d])]
        for place, dtype in enumerate(taken):
            if (number + place) % plan.parts == plan.part:
                yield name, dtype


def sweep(plan: SweepPlan) -> Iterator[SweepVerdict]:
    """The verdicts of a plan, one after the other."""
    table = WithWriting(decompositions())
    for name, dtype in pairs(plan):
        yield judge(name, dtype, table, plan.samples, plan.values)


def summary(verdicts: Sequence[SweepVerdict]) -> str:
    """Verdicts by dtype, as a table in Markdown."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        counts[verdict.dtype][verdict.status] += 1
    columns = [d for d in DTYPES if d in counts]
    lines = [
        f"| | {' | '.join(columns)} | all |",
        f"| --- | {'--- | ' * (len(columns) + 1)}".rstrip(),
    ]
    for status in MEANINGS:
        row = [counts[d][status] for d in columns]
        lines.append(f"| {status} | {' | '.join(map(str, row))} | {sum(row)} |")
    samples = sum(v.samples for v in verdicts)
    gradients = sum(v.gradients for v in verdicts)
    operations = len({v.name for v in verdicts})
    lines += ["", f"{operations} operations, {samples} samples, {gradients} with gradients."]
    lines += ["", *(f"- {status}: {meaning}" for status, meaning in MEANINGS.items())]
    return "\n".join(lines)


def differing(verdicts: Sequence[SweepVerdict], status: str) -> list[str]:
    """A line for each operation of a status, with what was found, its dtypes together."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.status == status:
            found[verdict.name, verdict.message].append(verdict.dtype)
    return [f"{name} ({', '.join(dtypes)}): {text}" for (name, text), dtypes in found.items()]


def leaves(verdicts: Sequence[SweepVerdict]) -> Counter[str]:
    """The declared leaves that were seen, by the number of verdicts they are in."""
    return Counter(op for verdict in verdicts for op in verdict.leaves)


def worst(verdicts: Sequence[SweepVerdict], count: int = 10) -> list[SweepVerdict]:
    """Verdicts with the greatest error against the reference, relative to eager's."""
    measured = (v for v in verdicts if v.status in ("right", "leaf"))
    return sorted(measured, key=lambda v: -v.ratio)[:count]


def worst_table(verdicts: Sequence[SweepVerdict], count: int = 10) -> str:
    """The worst ratios as a table in Markdown."""
    rows = [f"| {v.name} | {v.dtype} | {v.ratio:.2f} |" for v in worst(verdicts, count)]
    return "\n".join(["| operation | dtype | our error / eager's |", "| --- | --- | --- |", *rows])


def versions() -> str:
    """What a table was made with."""
    return f"torch {torch.__version__}, CPU"
