"""The coverage table: `python -m flambeau_prims.coverage`.

In: flags. Out: a count for each kind, the leaves by family, and with `--rest` what fits nowhere.
Invariant: the exit status is 1 under `--strict` if anything fits nowhere, else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence

import torch

from flambeau_prims._op import PRIMS
from flambeau_prims.coverage.leaves import KINDS, LEAVES, Covered, survey


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status says whether `--strict` holds."""
    parser = argparse.ArgumentParser(
        prog="python -m flambeau_prims.coverage", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--json", action="store_true", help="every overload with its kind, as JSON")
    parser.add_argument("--rest", action="store_true", help="also name what fits nowhere")
    parser.add_argument("--kind", choices=list(KINDS), help="also name the overloads of one kind")
    parser.add_argument("--strict", action="store_true", help="exit status 1 if there is a rest")
    options = parser.parse_args(arguments)
    found = survey()
    rest = [item.op for item in found if item.kind == "rest"]
    if options.json:
        print(json.dumps(as_json(found), indent=1))
    else:
        print(table(found))
        for kind in {options.kind, "rest" if options.rest or options.strict else None} - {None}:
            print(f"\n{kind}:", *(f"  {x.op}  {x.note}" for x in found if x.kind == kind), sep="\n")
    return 1 if options.strict and rest else 0


def as_json(found: Sequence[Covered]) -> dict[str, object]:
    """The survey as plain data."""
    return {
        "torch": torch.__version__,
        "prims": len(PRIMS),
        "overloads": {item.op: [item.kind, item.note] for item in found},
    }


def table(found: Sequence[Covered]) -> str:
    """The survey as text: kinds, then the families of leaves."""
    kinds = Counter(item.kind for item in found)
    families = Counter(item.note for item in found if item.kind == "leaf")
    lines = [f"torch {torch.__version__}: {len(found)} overloads; {len(PRIMS)} primitives", ""]
    lines += [f"{kinds[kind]:6d}  {kind:24s} {meaning}" for kind, meaning in KINDS.items()]
    lines += ["", "leaves by family:"]
    lines += [
        f"{families[family.family]:6d}  {family.family:24s} {family.reason}" for family in LEAVES
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
