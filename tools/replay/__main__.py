"""`python -m tools.replay write FOLDER [names]`, `python -m tools.replay compare BEFORE AFTER`.

In: flags. Out: a folder, or a report. Invariant: `compare` exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.replay", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="compile the programs and write what is made of them")
    write.add_argument("folder", type=Path)
    write.add_argument("names", nargs="*", help="programs or groups; all without any")
    compare = commands.add_parser("compare", help="two folders")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--lines", type=int, default=12, help="of each difference that are shown")
    given = parser.parse_args()
    if given.command == "write":
        if os.environ.get("PYTHONHASHSEED") != "0":  # what is met in a set's order is not a change
            os.environ["PYTHONHASHSEED"] = "0"
            os.execv(sys.executable, [sys.executable, "-m", "tools.replay", *sys.argv[1:]])
        os.environ["TRITON_INTERPRET"] = "1"  # a wrapper is made where there is no GPU
        from tools.replay.writing import write as write_all

        write_all(given.folder, given.names)
        return 0
    from tools.replay.comparing import differences, shown

    for line in shown(given.before, given.after, given.lines):
        print(line)
    return 1 if differences(given.before, given.after) else 0


if __name__ == "__main__":
    sys.exit(main())
