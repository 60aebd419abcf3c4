"""Many random programs: `python -m programs --count 10000 --seed 1`.

What comes in: how many, and a seed. What goes out: a count of verdicts and of refusals by
reason, and for every kind of difference the shortest program; exit status 1 then.
Invariant: one seed gives the same programs on every machine with the same hypothesis release.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import re
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from .compare import compare
from .draw import drafts
from .program import Draft, build
from .table import with_row


def run(count: int, start: int, refusals: bool, table: Path | None = None) -> int:
    """Run so many programs; print what became of them."""
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    statements = 0
    began = time.perf_counter()

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(drafts)
    def many(draft: Draft) -> None:
        nonlocal statements
        program = build(draft)
        statements += program.source.count("\n") - 1
        verdict = compare(program)
        verdicts[verdict.kind] += 1
        if verdict.kind in ("refused", "different"):
            words = re.sub(r"\d+|0x[0-9a-f]+", "#", verdict.words.split("\n")[0])[:110]
            reasons[f"{verdict.kind}: {words}"] += 1
            text = f"{draft.mode}, {draft.partition}, {draft.inputs}\n{program.source}"
            known = examples.get(f"{verdict.kind}: {words}")
            if known is None or len(text) < len(known):
                examples[f"{verdict.kind}: {words}"] = text + f"\n# {verdict.words}"

    many()
    seconds = time.perf_counter() - began
    print(
        f"seed {start}: {sum(verdicts.values())} programs, {statements} statements, "
        f"{seconds:.0f} s: " + ", ".join(f"{n} {kind}" for kind, n in verdicts.most_common())
    )
    if table is not None:
        before = table.read_text() if table.exists() else ""
        table.write_text(with_row(before, start, verdicts, seconds))
    for reason, times in reasons.most_common():
        print(f"{times:6d}  {reason}")
    for reason, text in examples.items():
        if reason.startswith("different") or refusals:
            print(f"\n== {reason}\n{text}")
    return 1 if verdicts["different"] else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="programs", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--refusals", action="store_true", help="print a program for each")
    parser.add_argument("--table", type=Path, help="add a row to this page of Markdown")
    options = parser.parse_args()
    faulthandler.enable()
    # What fake tensors refuse is counted here; torch logs it as well.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    return run(options.count, options.seed, options.refusals, options.table)


if __name__ == "__main__":
    sys.exit(main())
