"""Rows of workloads as text: a line while they run, Markdown at the end.

In: rows. Out: text. Invariant: every row is counted under exactly one status.
"""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
BAD = ("wrong", "crashed", "fault", "timeout")
STATUSES = ("right", "breaks", "eager", *BAD, "not run", "not installed")
ENVIRONMENT = ("torch", "numpy", "flambeau")


def line(row: Row) -> str:
    """One row, short."""
    text = f"{row['name']}: {row['status']} in {row['seconds']} s"
    if "ms" in row:
        text += f", {row['ms']} ms (eager {row['eager_ms']})"
    if "graphs" in row:
        text += f", first {row['first_s']} s, graphs {_graphs(row)}"
    if row.get("breaks"):
        text += f", breaks {row['breaks']}"
    for what in ("fallbacks", "faults"):
        if row.get(what):
            text += f", {what} {len(row[what])}: {row[what][0][:200]}"
    return text + (f" ({row['detail']})" if row.get("detail") else "")


def _graphs(row: Row) -> str:
    """Graphs of the first step, of the next two, of all later ones."""
    end = row.get("graphs_end", row["graphs_3"])
    return f"{row['graphs']}+{row['graphs_3'] - row['graphs']}+{end - row['graphs_3']}"


def summary(rows: Sequence[Row]) -> str:
    """How many of each status; how fast in a steady state."""
    count = Counter(row["status"] for row in rows)
    text = ", ".join(f"{count[status]} {status}" for status in STATUSES if count[status])
    if ratios := [row["eager_ms"] / row["ms"] for row in rows if row.get("ms")]:
        mean = statistics.geometric_mean(ratios)
        slower = sum(ratio < 0.95 for ratio in ratios)
        text += f"; steady {mean:.2f} times as fast as eager, {slower} of {len(ratios)} slower"
    return f"{len(rows)} workloads: {text}"


def beside(rows: Sequence[Row], incumbent: Mapping[str, Row]) -> str:
    """How our graphs and breaks compare with the incumbent's in the programs that both ran."""
    known = ((row, incumbent.get(row["name"], {})) for row in rows if "graphs" in row)
    pairs = [(row, other) for row, other in known if other.get("status") == "ran"]
    more = sum(row["graphs_3"] > other["graphs_3"] for row, other in pairs)
    fewer = sum(row["graphs_3"] < other["graphs_3"] for row, other in pairs)
    breaks = sum(_count(row) > _count(other) for row, other in pairs)
    whole = [sum(not _count(each) for each in each_of) for each_of in zip(*pairs, strict=True)]
    return (
        f"{len(pairs)} that the incumbent runs, too: more graphs than it in {more}, fewer in "
        f"{fewer}; more breaks in {breaks}; without a break {whole[0]}, the incumbent {whole[1]}."
    )


def _count(row: Row) -> int:
    return sum(row.get("breaks", {}).values())


def markdown(rows: Sequence[Row], command: str, incumbent: Mapping[str, Row]) -> str:
    """Counts, then every workload, then what ends graphs. incumbent: its rows, by workload."""
    versions = (f"{name} {importlib.metadata.version(name)}" for name in ENVIRONMENT)
    libraries = {name for row in rows for name in row.get("versions", ())}
    lines = [f"`{command}`", "", f"python {platform.python_version()}, {', '.join(versions)}, cpu"]
    lines += ["", f"{summary(rows)}; {len(libraries)} libraries.", ""]
    if incumbent:
        lines += [beside(rows, incumbent), ""]
    lines += [
        "*right*: one graph or several, none ended by a break. *graphs*: of the first step, of the "
        "next two, of all later ones. *steady*: median milliseconds of processor time of a step in "
        "turns with eager, after a thousand steps, or six seconds of them, in which nothing was "
        "compiled or found to be faster as it is. "
        "Compared after each of three steps: results, gradients, parameters, buffers, optimizer "
        "and random state. *incumbent*: its graphs in these steps, and its breaks.",
        "",
        "| workload | versions | status | graphs | breaks | incumbent | fallbacks | first step, s "
        "(eager) | steady, ms (eager) | times eager's speed |", "|---" * 10 + "|",
    ]  # fmt: skip
    for row in rows:
        versions = (f"{name} {version}" for name, version in row.get("versions", {}).items())
        breaks = (f"{n}x {name}" for name, n in row.get("breaks", {}).items())
        first = f"{row['first_s']} ({row['eager_first_s']})" if "first_s" in row else ""
        steady = f"{row['ms']} ({row['eager_ms']})" if "ms" in row else ""
        speed = f"{row['eager_ms'] / row['ms']:.2f}" if row.get("ms") else ""
        cells = [row["name"], ", ".join(versions), row["status"]]
        cells += [_graphs(row) if "graphs" in row else "", ", ".join(breaks)]
        cells += [_beside(incumbent.get(row["name"], {}))]
        cells += [str(len(row.get("fallbacks", ())) or ""), first, steady, speed]
        lines.append("| " + " | ".join(cells) + " |")
    details = [row for row in rows if row["status"] in (*BAD, "not run") or row.get("fallbacks")]
    lines += ["", "## What is wrong, not run, or fell back", ""]
    for row in details:
        # of a traceback its last line, of what has the lines of the program its first
        told = [row.get("detail", "").rpartition(" | ")[2]]
        told += [t.partition("\n")[0] for t in (*row.get("faults", ()), *row.get("fallbacks", ()))]
        lines.append(f"- {row['name']}: {_plain('; '.join(filter(None, told)))[:400]}")
    lines += ["", "## What ends graphs", "", "| break | workloads |", "|---|---|"]
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update({_plain(text.partition("\n")[0]) for text in row.get("break_texts", ())})
    lines += [f"| {text} | {n} |" for text, n in reasons.most_common(60)]
    return "\n".join(lines) + "\n"


def _beside(row: Row) -> str:
    if row.get("status") != "ran":
        return row.get("status", "")
    breaks = _count(row)
    return f"{row['graphs']}+{row['graphs_3'] - row['graphs']}" + (f", {breaks}x" if breaks else "")


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
