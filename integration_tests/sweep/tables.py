"""Rows of a sweep as text: a line while it runs, Markdown at the end.

In: rows of `forking.sweep`. Out: text. Invariant: every row is counted in exactly one column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
STATUSES = (
    "one graph", "recompiled", "breaks", "eager", "own branch", "wrong", "crashed", "timeout",
    "not run", "not built",
)  # fmt: skip


def line(row: Row) -> str:
    """One row, short."""
    text = f"{row['family']} {row['name']} {row['mode']}: {row['status']}"
    if row["status"] == "breaks":
        text += f" ({row['graphs']} graphs; {row['breaks'][0] if row['breaks'] else ''})"
    elif row.get("detail"):
        text += f" ({row['detail'][-400:]})"
    return text


def markdown(rows: Sequence[Row], command: str, note: str = "") -> str:
    """Counts by family and mode, then every model, then reasons."""
    lines = [f"`{command}`", "", *([note, ""] if note else []), "## Models", ""]
    lines += ["| family | mode | right | " + " | ".join(STATUSES) + " |"]
    lines += ["|---" * (len(STATUSES) + 3) + "|"]
    for family, mode in sorted({(row["family"], row["mode"]) for row in rows}):
        own = [row for row in rows if (row["family"], row["mode"]) == (family, mode)]
        count = Counter(row["status"] for row in own)
        right = sum(count[status] for status in STATUSES[:4])
        cells = [family, mode, str(right), *(str(count[status]) for status in STATUSES)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "*right*: as eager to the bit, or with at most twice eager's error against float64. *own "
        "branch*: the model does something else when torch.compiler.is_compiling() is True, in "
        "eager as well. *recompiled*: one graph a call, another in the second call, since the "
        "first has changed the model's state.",
    ]
    incumbent = any("incumbent" in row for row in rows)
    if incumbent:
        lines += _beside(rows)
    lines += ["", "## Each model", ""]
    lines += ["| model | mode | status | graphs | operations | first call, s | "
              + ("incumbent | " if incumbent else "") + "what ended graphs |"]  # fmt: skip
    lines += ["|---" * (8 if incumbent else 7) + "|"]
    for row in rows:
        if row["status"] == "not built":
            continue
        cells = [row["name"], row["mode"], row["status"], str(row.get("graphs", "")),
                 str(row.get("operations", "")), f"{row.get('first_s', 0):.2f}"]  # fmt: skip
        if incumbent:
            cells.append(str(row.get("incumbent", "")))
        why = "; ".join(f"{n}x {text}" for text, n in Counter(row.get("breaks", ())).most_common(2))
        cells.append((why or row.get("detail", ""))[:220].replace("|", "/").replace("\n", " "))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Reasons of graph breaks", "", "| reason | models | breaks |", "|---|---|---|"]
    lines += _reasons(rows)
    lines += ["", "## Not built (by their own library, in this form)", ""]
    lines += [f"- {row['name']}: {row['detail'][:160]}" for row in rows
              if row["status"] == "not built"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _beside(rows: Sequence[Row]) -> list[str]:
    """How often each system makes one graph of a model that both were given."""
    both = [row for row in rows if "incumbent" in row and row["status"] != "not built"]
    count = Counter((row["status"] == "one graph", row["incumbent"] == "1 graphs") for row in both)
    failed = sum(not row["incumbent"].endswith("graphs") for row in both)
    return [
        "", "## Beside the incumbent", "", "| | the incumbent: one graph | several, or none |",
        "|---|---|---|",
        f"| Flambeau: one graph | {count[True, True]} | {count[True, False]} |",
        f"| several, or none | {count[False, True]} | {count[False, False]} |", "",
        f"{len(both)} models, {', '.join(sorted({row['mode'] for row in both}))}; the incumbent's "
        f"answer was none (crashed, not run) for {failed} of them.",
    ]  # fmt: skip


def _reasons(rows: Sequence[Row]) -> list[str]:
    models: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for row in rows:
        own = Counter(text.split(" (")[0][:100] for text in row.get("breaks", ()))
        times.update(own)
        models.update(own.keys())
    return [
        f"| {text.replace('|', '/')} | {n} | {times[text]} |" for text, n in models.most_common(60)
    ]
