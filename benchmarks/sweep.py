"""The model sweep beside the incumbent: how many graphs each system makes of the same model.

In: rows that `python -m integration_tests.sweep --json FILE` has kept (the last of a model and mode
counts). Out: the table of `benchmarks/results/capture-sweep.md`. Invariant: the incumbent is judged
by the same rules, in a process per model, with a backend that runs graphs as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from integration_tests.sweep.cases import Case, families
from integration_tests.sweep.forking import Row, sweep
from integration_tests.sweep.judging import Counts
from integration_tests.sweep.tables import markdown


def incumbent(module: torch.nn.Module) -> tuple[Callable[..., Any], Callable[[], Counts]]:
    """torch.compile with a backend that counts."""
    found = Counts()

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        found.graphs += 1
        found.operations += sum(node.op.startswith("call_") for node in graph.graph.nodes)
        return graph.forward

    torch._dynamo.config.recompile_limit = 64
    return torch.compile(module, backend=backend, dynamic=False), lambda: found


def latest(files: Iterable[Path]) -> list[Row]:
    """The last row of each model and mode, in order of names."""
    rows: dict[tuple[str, str, str], Row] = {}
    for file in files:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            key = (row["family"], row["name"], row["mode"])
            known = rows.get(key)
            if known is None or known["status"] in OPEN or row["status"] not in OPEN:
                rows[key] = row
    return [rows[key] for key in sorted(rows)]


OPEN = ("timeout", "not run", "not built")  # what says nothing does not undo what did


def add_incumbent(rows: list[Row], file: Path, mode: str, arguments: argparse.Namespace) -> None:
    """Run the incumbent on models of some rows, those where Flambeau breaks first, and put what it
    did into the rows. The file keeps it, a line each: what it has already is not run again."""
    known: dict[tuple[str, str, str], str] = {}
    if file.exists():
        for line in file.read_text().splitlines():
            found = json.loads(line)
            known[found["family"], found["name"], found["mode"]] = found["incumbent"]
    wanted = [
        row for row in rows if row["mode"] == mode and row["status"] in ("one graph", "breaks")
    ]
    wanted.sort(key=lambda row: row["status"] != "breaks")
    if arguments.breaks:
        wanted = [row for row in wanted if row["status"] == "breaks"]
    missing = [row for row in wanted if (row["family"], row["name"], mode) not in known]
    missing = missing[: arguments.limit]
    names = {(row["family"], row["name"]) for row in missing}
    cases: list[Case] = []
    for family in sorted({family for family, _ in names}):
        cases += [case for case in families()[family](True) if (family, case.name) in names]
    until = time.monotonic() + arguments.seconds if arguments.seconds else None
    for (row,) in sweep(cases, [mode], incumbent, arguments.timeout, arguments.jobs, until):
        told = f"{row['graphs']} graphs" if row.get("graphs") else ""
        if row["status"] not in ("one graph", "breaks", "recompiled"):
            told = f"{row['status']} {told}".strip()
        known[row["family"], row["name"], mode] = told
        line = {"family": row["family"], "name": row["name"], "mode": mode, "incumbent": told}
        line["first_s"] = row.get("first_s", 0.0)
        with file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print(row["name"], told, flush=True)
    for row in rows:
        found = known.get((row["family"], row["name"], row["mode"]))
        if found is not None:
            row["incumbent"] = found


def keep_costs(rows: Iterable[Row], file: Path) -> None:
    """The seconds that each model took, where rows tell, beside what the file has of others."""
    costs = json.loads(file.read_text()) if file.exists() else {}
    costs |= {row["name"]: row["seconds"] for row in rows if "seconds" in row}
    file.write_text(json.dumps(dict(sorted(costs.items())), indent=0) + "\n")


def main() -> int:
    """Merge, run the incumbent where asked, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("--mode", default="inference")
    parser.add_argument("--incumbent", type=Path, help="what the incumbent did is kept here")
    parser.add_argument("--limit", type=int, default=0, help="models to run the incumbent on")
    parser.add_argument("--breaks", action="store_true", help="only where Flambeau breaks")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--seconds", type=float, help="begin no model after so long, end the rest")
    parser.add_argument("--note", default="", help="a line on where the rows are from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--costs", type=Path, help="the seconds of each model are kept here")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    rows = latest(arguments.rows)
    if arguments.incumbent:
        add_incumbent(rows, arguments.incumbent, arguments.mode, arguments)
    text = markdown(rows, "python -m integration_tests.sweep --jobs 16 --json ROWS; "
                    "python benchmarks/sweep.py ROWS --incumbent FILE --limit 900 --jobs 16",
                    arguments.note)  # fmt: skip
    if arguments.costs:
        keep_costs(rows, arguments.costs)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if arguments.markdown:
        arguments.markdown.write_text(text)
    else:
        print(text)
    return int(any(row["status"] in ("wrong", "crashed") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
