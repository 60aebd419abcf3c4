"""Graphs and breaks of the incumbent in the programs of libraries.

    python -m benchmarks.programs.library_graphs --json benchmarks/results/libraries-incumbent.jsonl
    python -m integration_tests.libraries --json ours.jsonl --resume --markdown TABLE.md
        --incumbent benchmarks/results/libraries-incumbent.jsonl

In: flags. Out: a line a program: how many graphs its capture has given a backend after each of the
steps that the comparison with eager runs, and its breaks by their first line. Invariant: its graphs
run as eager runs them, so that only capture counts; each program is a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from integration_tests.libraries import running
from integration_tests.libraries.judging import STEPS
from integration_tests.libraries.workload import Workload, load
from integration_tests.sweep.judging import seed_all

Row = dict[str, Any]


def captured(workload: Workload) -> Row:
    """What the incumbent captures of a program, in the steps that the other comparison runs."""
    from torch._dynamo.utils import counters

    graphs: list[int] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs[-1:] = [graphs[-1] + 1]
        return module.forward

    compiled = functools.partial(torch.compile, backend=backend)
    seed_all()
    try:
        with warnings.catch_warnings(), mock.patch.object(torch, "compile", compiled):
            warnings.simplefilter("ignore")
            program = workload.build(compiled)
            for number in range(STEPS):
                graphs.append(graphs[-1] if graphs else 0)
                torch.manual_seed(number)
                program.step()
    except Exception as error:
        return {"status": "raised", "detail": f"{type(error).__name__}: {error}"[:300]}
    breaks = {text.partition("\n")[0]: n for text, n in counters["graph_break"].items()}
    return {"status": "ran", "graphs": graphs[0], "graphs_3": graphs[-1], "breaks": breaks}


def main() -> None:
    """Run what the file has not yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="part of a name; may be repeated")
    parser.add_argument("--timeout", type=float, default=100.0, help="seconds a program may take")
    parser.add_argument("--json", type=Path, required=True, help="a line is added for each program")
    given = parser.parse_args()
    known = given.json.read_text().splitlines() if given.json.exists() else []
    done = {json.loads(line)["name"] for line in known}
    names = [n for n in load() if not given.only or any(text in n for text in given.only)]
    for row in running.rows([n for n in names if n not in done], given.timeout, captured):
        with given.json.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(row["name"], row["status"], row.get("graphs_3", row.get("detail")), flush=True)


if __name__ == "__main__":
    main()
