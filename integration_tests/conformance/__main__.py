"""The command: `python -m integration_tests.conformance`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from integration_tests.campaign.program import script
from integration_tests.conformance import running


def main() -> int:
    parser = argparse.ArgumentParser(description="Python's reference, construct by construct.")
    parser.add_argument("--only", default="", help="constructs whose name has this text")
    parser.add_argument("--show", metavar="NAME", help="print the programs as scripts")
    parser.add_argument("--write", action="store_true", help="keep the states for the page")
    given = parser.parse_args()
    wanted = [c for c in running.constructs() if (given.show or given.only) in c.key]
    if given.show:
        for construct in wanted:
            for program in construct.programs():
                print(script(program))
        return 0
    found: dict[str, list[running.State]] = {}
    for construct, program, row in running.judged(wanted):
        state = running.state_of(row)
        label = f"{construct.key} [{program.seed}]"
        if state is None:
            print(f"not run: {label}: {row.get('text')}", flush=True)
            continue
        found.setdefault(construct.key, []).append(state)
        if state["state"] != running.ONE_GRAPH:
            print(f"{state['state']}: {label}: {'; '.join(state['why'])}", flush=True)
    states = {c.key: running.joined(found[c.key]) for c in wanted if c.key in found}
    counts = Counter(state["state"] for state in states.values())
    print(", ".join(f"{counts[state]} {state}" for state in running.ORDER))
    if given.write:
        running.keep(states)
    return int(bool(counts[running.WRONG]))


if __name__ == "__main__":
    sys.exit(main())
