"""Costs of tests: `FLAMBEAU_TEST_COSTS=FOLDER nox -s tests`, then `python -m tools.costs FOLDER`.

In: what each test process kept in a folder. Out: the page of a table by part, and of the slowest
tests, which a release has newer than the one before it. Invariant: seconds are the processor's, of
a test and of the processes that it starts, whatever else the machine does; two processors take half
as long, or a little more.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from tools.releases import ROOT, TEST_COSTS

FOLDER = "FLAMBEAU_TEST_COSTS"
BEFORE = "before the first test"
SLOWEST = 40
HEAD = """# What the tests cost

    FLAMBEAU_TEST_COSTS=folder nox -s tests
    python -m tools.costs folder

{day}, Python {python} on {cores} processors: seconds of a processor, of a test and of the processes
that it starts and waits for; of ranks, whose server begins them, none. *Seconds before the first
test*: importing torch and collecting, of all processes of a part.

"""


def seconds() -> float:
    """Of the processor, that this process and those that it has waited for have taken."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def keep(folder: Path, seconds_of: dict[str, float]) -> None:
    """Writes what a process has seen."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}-{time.time_ns()}.json").write_text(json.dumps(seconds_of))


def part_of(name: str) -> str:
    first, _, rest = name.partition("/")
    return rest.partition("/")[0] if first == "packages" else first


def table(folder: Path) -> str:
    """What of the page was measured."""
    parts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    families: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.json")):
        kept: dict[str, float] = json.loads(path.read_text())
        before = kept.pop(BEFORE)
        for name, each in kept.items():
            family = name.partition("[")[0]
            parts[part_of(name)] += Counter({"cases": 1, "tests": each})  # type: ignore[dict-item]
            families[family] += each  # type: ignore[assignment]
            cases[family] += 1
        if kept:
            parts[part_of(next(iter(kept)))]["before"] += before  # type: ignore[assignment]
    rows = [
        f"| {part} | {row['cases']} | {row['before']:.0f} | {row['tests']:.0f} |"
        for part, row in sorted(parts.items())
    ]
    slow = [
        f"| `{family}` | {cases[family]} | {each:.1f} |"
        for family, each in families.most_common(SLOWEST)
    ]
    head = ["| part | cases | seconds before the first test | seconds of tests |"]
    return "\n".join(
        [*head, "| --- | --- | --- | --- |", *rows, "", "| test | cases | seconds |"]
        + ["| --- | --- | --- |", *slow]
    )


def page(folder: Path) -> str:
    """The table, with when and where it was measured."""
    day = datetime.datetime.now(datetime.UTC).date()
    found = {"day": day, "python": platform.python_version(), "cores": os.cpu_count()}
    return f"{HEAD.format(**found)}{table(folder)}\n"


if __name__ == "__main__":
    (ROOT / TEST_COSTS).write_text(page(Path(sys.argv[1])), encoding="utf-8")
