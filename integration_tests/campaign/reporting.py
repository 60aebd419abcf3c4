"""Tables and scripts of a campaign's findings.

In: rows. Out: Markdown; a script a cause. Invariant: every row is counted once; refusals are
counted by their reasons, and a cause by the programs that show it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from integration_tests.campaign.program import from_json, script
from integration_tests.campaign.verdicts import BAD, VERDICTS, cause

Row = dict[str, Any]


def table(rows: Iterable[Row]) -> str:
    """Programs by family and verdict, reasons of refusals, causes."""
    rows = list(rows)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["program"].partition(":")[0]][row["verdict"]] += 1
        counts["all"][row["verdict"]] += 1
    order = [*sorted(set(counts) - {"all"}), "all"]
    lines = [
        f"| family | programs | {' | '.join(VERDICTS)} |",
        "| --- |" + " --- |" * (1 + len(VERDICTS)),
    ]
    for family in order:
        each = counts[family]
        cells = " | ".join(str(each[v]) for v in VERDICTS)
        lines.append(f"| {family} | {sum(each.values())} | {cells} |")
    lines += [
        "",
        "## Causes",
        "",
        "| programs | cause | first | text |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in grouped(rows):
        text = str(found[0].get("text", "")).replace("|", "/").replace("\n", " ")[:260]
        lines.append(f"| {len(found)} | {name} | {found[0]['program']} | {text} |")
    reasons = Counter(reason_class(r) for row in rows for r in {*row.get("reasons", ())})
    lines += ["", "## Reasons of refusals", "", "| programs | reason |", "| --- | --- |"]
    lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common(60)]
    return "\n".join(lines).replace("0x", "") + "\n"


def grouped(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows of each cause, the worst and the most frequent first."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["verdict"] in BAD:
            groups[row.get("cause") or cause(row)].append(row)
    ordered = sorted(groups.items(), key=lambda g: (BAD.index(g[1][0]["verdict"]), -len(g[1])))
    return ordered


def reason_class(text: str) -> str:
    """A reason without the names of the program."""
    short = re.sub(r"'[^']*'|\bTensorValue\([^)]*\)|\d+(\.\d+)?|\([^)]*\)", "_", text)
    identity = re.search(r"FB\d+", text)
    return (f"{identity[0]} " if identity else "") + short[:90].replace("|", "/")


def write_found(rows: Sequence[Row], folder: Path, merged: bool) -> int:
    """A script for each cause that has a source; in one file where `merged`."""
    texts = []
    for name, found in grouped(rows):
        sources = [row for row in found if row.get("source")]
        if not sources:
            continue
        least = min(sources, key=lambda row: from_json(row["source"]).size)
        why = f"{name}; {len(found)} programs\n{least.get('text', '')}\n"
        text = script(from_json(least["source"]), why.replace("\\", "/").replace('"""', "'''"))
        texts.append((re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60], text))
    if merged:
        line = "\n\n# " + "-" * 90 + "\n\n"
        (folder / "found.txt").write_text(line.join(text for _, text in texts), encoding="utf-8")
        return len(texts)
    place = folder / "found"
    place.mkdir(exist_ok=True)
    for old in place.glob("*.py"):
        old.unlink()
    for number, (name, text) in enumerate(texts):
        (place / f"{number:03d}-{name}.py").write_text(text, encoding="utf-8")
    return len(texts)
