"""`python -m integration_tests.sweep --family timm --limit 10`: capture models and judge them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from integration_tests.sweep.cases import Case, families
from integration_tests.sweep.forking import Row, sweep
from integration_tests.sweep.judging import System
from integration_tests.sweep.systems import captured
from integration_tests.sweep.tables import line, markdown

FAMILIES = ("torchvision", "timm", "transformers")
COSTS = Path(__file__).with_name("costs.json")  # written by benchmarks/sweep.py
UNKNOWN = 15.0  # seconds


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--only", action="append", help="part of a name; may be repeated")
    parser.add_argument("--every", action="store_true", help="every variant, every head")
    parser.add_argument("--limit", type=int, help="how many cases of a family")
    parser.add_argument("--part", default="1/1", help="2/5: the second of five parts")
    parser.add_argument("--modes", nargs="+", default=["inference", "training"])
    parser.add_argument("--backend", default="eager", help="what runs the graphs")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a model may take")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--seconds", type=float, help="begin no model after so long, end the rest")
    parser.add_argument("--json", type=Path, help="rows are added to this file, a line each")
    parser.add_argument("--resume", action="store_true", help="leave out what --json has already")
    parser.add_argument("--skip", type=Path, help="leave out the models that this file has rows of")
    parser.add_argument("--order", type=Path, default=COSTS, help="seconds of each model, by name")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    return parser.parse_args()


def choose(arguments: argparse.Namespace) -> list[Case]:
    """The cases asked for."""
    part, parts = (int(number) for number in arguments.part.split("/"))
    chosen: list[Case] = []
    for family in arguments.family or FAMILIES:
        found = list(families()[family](arguments.every))
        if arguments.only:
            found = [c for c in found if any(text in c.name for text in arguments.only)]
        chosen += found[: arguments.limit][part - 1 :: parts]
    done = [arguments.skip, arguments.json if arguments.resume else None]
    known = {model for file in done if file and file.exists() for model in _known(file)}
    return longest_first([c for c in chosen if (c.family, c.name) not in known], arguments.order)


def longest_first(cases: list[Case], order: Path) -> list[Case]:
    """What takes long begins first, so that nothing waits for it at the end; a model that the file
    does not know may take long."""
    costs = json.loads(order.read_text()) if order.exists() else {}
    return sorted(cases, key=lambda case: -costs.get(case.name, UNKNOWN))


def _known(file: Path) -> set[tuple[str, str]]:
    """The models that a file of rows tells of."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {(row["family"], row["name"]) for row in rows}


def run(arguments: argparse.Namespace, system: System) -> list[Row]:
    """Sweep, showing and keeping rows as they come."""
    chosen = choose(arguments)
    rows: list[Row] = []
    started = time.time()
    until = time.monotonic() + arguments.seconds if arguments.seconds else None
    swept = sweep(chosen, arguments.modes, system, arguments.timeout, arguments.jobs, until)
    for number, found in enumerate(swept, 1):
        rows += found
        for row in found:
            print(f"[{number}/{len(chosen)} {time.time() - started:.0f}s] {line(row)}", flush=True)
        if arguments.json:
            with arguments.json.open("a") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in found)
    return rows


def main() -> int:
    """Sweep and report; 1 if anything is wrong or crashed."""
    arguments = parse()
    rows = run(arguments, captured(arguments.backend))
    text = markdown(rows, " ".join(["python -m integration_tests.sweep", *sys.argv[1:]]))
    if arguments.markdown:
        arguments.markdown.write_text(text)
    print(text)
    return int(any(row["status"] in ("wrong", "crashed") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
