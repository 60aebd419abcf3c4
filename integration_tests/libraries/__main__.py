"""`python -m integration_tests.libraries --only timm`: programs of libraries, both ways.

In: flags. Out: a line a workload, a file of rows, a table. Invariant: the exit status is 1 if a
program is wrong, crashes, meets a fault of the compiler or does not end.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from integration_tests.libraries import running, tables
from integration_tests.libraries.workload import load


def parse() -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="part of a name; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds a workload may take")
    parser.add_argument("--json", type=Path, help="rows are added to this file, a line each")
    parser.add_argument("--resume", action="store_true", help="leave out what --json has already")
    parser.add_argument("--markdown", type=Path, help="write the table of all rows here")
    parser.add_argument(
        "--incumbent", type=Path, help="rows of benchmarks.programs.library_graphs for the table"
    )
    return parser.parse_args()


def main() -> int:
    """Run and report."""
    given = parse()
    names = [n for n in load() if not given.only or any(text in n for text in given.only)]
    rows = []
    if given.resume and given.json and given.json.exists():
        rows = [json.loads(line) for line in given.json.read_text().splitlines()]
        rows = [row for row in rows if row["name"] in names]
        names = [name for name in names if name not in {row["name"] for row in rows}]
    if given.list:
        print(*names, sep="\n")
        return 0
    for number, row in enumerate(running.rows(names, given.timeout), 1):
        rows.append(row)
        print(f"[{number}/{len(names)}] {tables.line(row)}", flush=True)
        if given.json:
            with given.json.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
    command = " ".join(["python -m integration_tests.libraries", *sys.argv[1:]])
    if given.markdown:
        lines = given.incumbent.read_text().splitlines() if given.incumbent else ()
        incumbent = {row["name"]: row for row in map(json.loads, lines)}
        given.markdown.write_text(tables.markdown(rows, command, incumbent))
    print(tables.summary(rows))
    return int(any(row["status"] in tables.BAD for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
