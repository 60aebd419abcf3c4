"""A campaign: programs in a fixed order, judged in processes, what they show made short.

In: a plan. Out: rows in `results.jsonl`, `table.md`, scripts of what was found.
Invariant: a second run with the same folder goes on after the programs that have a row, whatever
the number of processes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.campaign.program import Program, from_json
from integration_tests.campaign.reporting import grouped, table, write_found
from integration_tests.campaign.serving import Conditions, Task, answered
from integration_tests.campaign.shrinking import shrink
from integration_tests.campaign.verdicts import cause

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """minutes: of judging; making it short takes up to a third more. only: names of programs."""

    families: Sequence[str]
    out: Path
    minutes: float = 10.0
    programs: int = 10**9
    seed: int = 0
    processes: int = 1
    backend: str = "mix"
    examples: int = 2
    merged: bool = False
    shrink: bool = True
    only: Sequence[str] = ()


def earlier(out: Path) -> list[Row]:
    """The rows of earlier runs; a line that was cut off is none."""
    path = out / "results.jsonl"
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def names(plan: Plan, done: set[str]) -> Iterator[Task]:
    """The programs: those asked for, or families in turn."""
    if plan.only:
        yield from ({"name": n, "backend": plan.backend} for n in plan.only if n not in done)
        return
    for number in range(plan.programs):
        family = plan.families[number % len(plan.families)]
        name = f"{family}:{plan.seed + number // len(plan.families)}"
        if name not in done:
            yield {"name": name, "backend": plan.backend}


def campaign(plan: Plan, conditions: Conditions) -> list[Row]:
    """Run it; all rows, those of earlier runs included."""
    plan.out.mkdir(parents=True, exist_ok=True)
    rows = earlier(plan.out)
    done = {row["program"] for row in rows}
    end = time.monotonic() + 60 * plan.minutes
    with (plan.out / "results.jsonl").open("a", encoding="utf-8") as file:
        tasks = names(plan, done)
        for _, row in answered(tasks, plan.processes, conditions, lambda: time.monotonic() > end):
            rows.append(row)
            file.write(json.dumps(row, default=str) + "\n")
            file.flush()
    (plan.out / "table.md").write_text(table(rows), encoding="utf-8")
    if plan.shrink:
        rows = shortened(plan, conditions, rows)
    (plan.out / "table.md").write_text(table(rows), encoding="utf-8")
    write_found(rows, plan.out, plan.merged)
    return rows


def shortened(plan: Plan, conditions: Conditions, rows: list[Row]) -> list[Row]:
    """The rows, with a few of each cause made short and named for what they came to."""
    chosen: list[Row] = []
    for _, found in grouped(rows):
        few = plan.examples if found[0].get("guilty") else 20 * plan.examples
        chosen += found[:few]
    end = time.monotonic() + 20 * plan.minutes
    chosen = [row for row in chosen if "cause" not in row]
    waiting: dict[str, Row] = {}
    searches: dict[str, Any] = {}
    ready: list[Task] = []
    for number, row in enumerate(chosen):
        if not row.get("source"):
            continue
        program = from_json(row["source"])
        label = str(number)
        searches[label] = shrink(program)
        waiting[label] = row
        _next(searches, label, None, ready, waiting)

    def tasks() -> Iterator[Task | None]:
        while searches:
            yield ready.pop(0) if ready else None

    for task, row in answered(tasks(), plan.processes, conditions, lambda: time.monotonic() > end):
        label = task["label"]
        shows = row["verdict"] == waiting[label]["verdict"] and cause(row) == cause(waiting[label])
        if shows:
            waiting[label]["source"] = task["program"]
            waiting[label]["text"] = row.get("text", "")
            waiting[label]["guilty"] = row.get("guilty", "")
        _next(searches, label, shows, ready, waiting)
    for label, row in waiting.items():
        if label not in searches and not row.get("guilty") and row["verdict"] == "differs":
            row["cause"] = f"{cause(row)}: {words(from_json(row['source']))}"
    return rows


PLAIN = frozenset(
    "make torch float32 whole normal dense return True False import class def self LOG append for "
    "if else in and or not with try except Exception error type None out outs leaf t x u".split()
)


def words(program: Program) -> str:
    """The names that a short program is made of: what programs of one cause have in common."""
    text = "\n".join((*program.body, *(s for c in program.calls for s in (*c.before, *c.after))))
    found = re.findall(r"[A-Za-z_][A-Za-z_]+", text)
    return " ".join(sorted({word for word in found if word not in PLAIN})[:8])


def _next(
    searches: dict[str, Any], label: str, shows: bool | None, ready: list[Task],
    waiting: dict[str, Row],
) -> None:  # fmt: skip
    try:
        search = searches[label]
        program: Program = next(search) if shows is None else search.send(shows)
        ready.append({"label": label, "program": program.to_json(), "backend": program.backend})
    except StopIteration:
        del searches[label]
