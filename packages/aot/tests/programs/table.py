"""The page of what became of random programs, a row a seed.

What comes in: the counts of one run. What goes out: the page with the row of its seed made anew.
Invariant: rows of one page are of one state of the sources; a page of another state is begun anew.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import flambeau_aot
import hypothesis
import torch

KINDS = ("same", "refused", "both raise", "different")
"""What is counted; the rest of the verdicts is of what was written to after it was saved."""


def state() -> str:
    """A name of the sources that were run: this package's and those of the programs."""
    digest = hashlib.sha256()
    roots = (Path(flambeau_aot.__file__).parent, Path(__file__).parent)
    for path in sorted(p for root in roots for p in root.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def with_row(text: str, seed: int, counts: Mapping[str, int], seconds: float) -> str:
    """The page with this seed's row."""
    sources = f"sources {state()}"
    rows: dict[int, list[int]] = {}
    if sources in text:
        for found in re.finditer(r"^\| (\d+) \|(.+)\|$", text, re.M):
            rows[int(found[1])] = [int(cell) for cell in found[2].split("|")]
    total = sum(counts.values())
    known = [counts.get(kind, 0) for kind in KINDS]
    rows[seed] = [total, *known, total - sum(known), round(seconds)]
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    count = rows[seed][0]
    lines = [
        "# Random programs",
        "",
        f"`python -m programs --count {count} --seed S --table PATH` in `packages/aot/tests`, for",
        f"each seed S; {sources}; torch {torch.__version__},",
        f"hypothesis {hypothesis.__version__}, Python {platform.python_version()}, CPU. Refused:",
        "by a named error of this package. Both raise: an error of one class about one thing.",
        "Different: not as in eager. Saved: eager or compiled alone raises in the backward pass,",
        "for what it saved was written to later.",
        "",
        "| seed | programs | same | refused | both raise | different | saved | seconds |",
        "|" + " --- |" * 8,
        *(f"| {s} | " + " | ".join(map(str, rows[s])) + " |" for s in sorted(rows)),
        "| all | " + " | ".join(map(str, sums)) + " |",
    ]
    return "\n".join(lines) + "\n"
