"""The sweep's table: `python -m flambeau_prims.sweep`.

In: flags. Out: the table of verdicts; files with `--json` and `--markdown`.
Invariant: the exit status is 1 if anything is wrong, else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flambeau_prims.sweep import run
from flambeau_prims.sweep.judge import SweepVerdict
from flambeau_prims.sweep.measure import DTYPES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep; the exit status says whether anything is wrong."""
    options = _parser().parse_args(arguments)
    plan = run.SweepPlan(
        options.operations, tuple(options.dtypes), options.samples, options.part, options.parts
    )
    started = time.perf_counter()
    verdicts = []
    for verdict in run.sweep(plan):
        verdicts.append(verdict)
        if verdict.status == "wrong":
            print(f"wrong: {verdict.name} {verdict.dtype}: {verdict.message}", flush=True)
    seconds = time.perf_counter() - started
    if options.merge:
        seconds += _merge(verdicts, json.loads(options.merge.read_text()))
    print(run.summary(verdicts))
    print(f"\n{seconds:.0f} s, {run.versions()}")
    if options.worst:
        print(f"\n{run.worst_table(verdicts)}")
    if options.layouts:
        print(*(f"layout: {v.name} {v.dtype}: {v.layout}" for v in verdicts if v.layout), sep="\n")
    if options.json:
        record = {"versions": run.versions(), "seconds": round(seconds), "plan": asdict(plan)}
        record["verdicts"] = [as_json(v) for v in verdicts]
        lines = json.dumps(record).replace('{"name"', '\n{"name"')
        options.json.write_text(lines + "\n")
    if options.accuracy:
        text = options.accuracy.read_text()
        options.accuracy.write_text(with_section(text, f"{run.worst_table(verdicts)}\n"))
    if options.markdown:
        options.markdown.write_text(page(verdicts, seconds, options.samples))
    return 1 if any(v.status == "wrong" for v in verdicts) else 0


def _merge(verdicts: list[SweepVerdict], earlier: dict[str, Any]) -> float:
    """Add the verdicts of an earlier run on what was not run now; return its time."""
    now = {(v.name, v.dtype) for v in verdicts}
    for data in earlier["verdicts"]:
        if (data["name"], data["dtype"]) not in now:
            verdicts.append(SweepVerdict(**{**data, "leaves": tuple(data.get("leaves", ()))}))
    return float(earlier["seconds"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flambeau_prims.sweep", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("operations", nargs="?", default="", help="a pattern that names must contain")
    add("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    add("--samples", type=int, default=6, help="the most samples of an operation at a dtype")
    add("--part", type=int, default=0, help="which part of the matrix, from 0")
    add("--parts", type=int, default=1, help="into how many parts it is divided")
    add("--worst", action="store_true", help="also the ten greatest errors relative to eager's")
    add("--layouts", action="store_true", help="also results whose strides are not eager's")
    add("--merge", type=Path, help="add what an earlier run's --json has and this one has not")
    add("--json", type=Path, help="write all verdicts to this file")
    add("--markdown", type=Path, help="write the tables to this file")
    add("--accuracy", type=Path, help="rewrite the worst errors between the marks of this page")
    return parser


MARKS = ("<!-- worst: begin -->\n", "<!-- worst: end -->")


def with_section(page_text: str, section: str) -> str:
    """The page with what stands between the marks replaced; ValueError without marks."""
    begin, end = (page_text.index(mark) for mark in MARKS)
    return page_text[: begin + len(MARKS[0])] + section + page_text[end:]


def as_json(verdict: SweepVerdict) -> dict[str, object]:
    """A verdict as plain data, without what is empty."""
    data = asdict(verdict)
    data["ratio"] = round(verdict.ratio, 3)
    return {key: value for key, value in data.items() if value}


def page(verdicts: Sequence[SweepVerdict], seconds: float, samples: int) -> str:
    """The tables as a page."""
    parts = [
        "# Primitives: torch's operation database through the decompositions",
        "",
        f"`python -m flambeau_prims.sweep --samples {samples}`, {run.versions()}: {seconds:.0f} s.",
        "",
        run.summary(verdicts),
    ]
    for title, status in (("Different", "different"), ("Wrong", "wrong"), ("Refused", "refused")):
        parts += ["", f"## {title}", ""]
        parts += [f"- {line}" for line in run.differing(verdicts, status)] or ["None."]
    parts += ["", "## Leaves met", "", "| operation | verdicts |", "| --- | --- |"]
    parts += [f"| {op} | {count} |" for op, count in run.leaves(verdicts).most_common()]
    parts += ["", "## The ten greatest errors relative to eager's", "", run.worst_table(verdicts)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
