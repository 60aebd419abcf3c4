"""The page of benchmarks, from `benchmarks/results/`.

In: the JSON files that benchmarks left. Out: the page. Invariant: each figure is read from a file
that the page names; every row that is slower than eager or than torch's own compiler is listed,
with its figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SYSTEMS = ("eager", "flambeau", "incumbent")

HEAD = """\
# Benchmarks

Milliseconds of a call or of a training step once everything is compiled (medians; the systems take
turns in one process), and seconds of the first call. *eager* is PyTorch as it is, *torch.compile*
the compiler that comes with it, in the same run. A ratio above 1 means that Flambeau is faster.
Means are geometric, over all rows, wins and losses alike. Each section ends with every row in which
Flambeau is slower than one of the two.

"""


@dataclass(frozen=True)
class Row:
    """A program, and what a call takes by system, in one unit."""

    name: str
    eager: float
    flambeau: float
    incumbent: float | None


def page() -> str:
    """The page."""
    sections = [
        *_cpu(),
        _section("Models on an H200", "h200-models.json", _h200_models(), "ms", 2),
        _section("Kernels on an H200", "h200-kernels.json", _h200_kernels(), "us", 0),
        _section("Optimizers on a CPU", "optimizers-cpu.json", _optimizers("cpu"), "ms", 2),
        _section("Optimizers on an H200", "optimizers-h200.json", _optimizers("h200"), "ms", 2),
        _libraries(),
    ]
    return HEAD + "\n".join(sections)


def _read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _times(row: dict[str, Any], key: str) -> Row | None:
    systems = row["systems"]
    found = [systems.get(name, {}).get(key) for name in SYSTEMS]
    if found[0] is None or found[1] is None:
        return None
    way = row.get("mode", "")
    if "training" in row:
        way = "training" if row["training"] else "inference"
    return Row(f"{row['name']} {way}".strip(), *found)


def _cpu() -> list[str]:
    name = "cpu-kernels-and-models.json"
    cases = _read(name)["cases"]
    by_kind = {
        kernel: [
            row
            for each in cases
            if each["kernel"] is kernel and (row := _times({**each, **each["steady"]}, "ms"))
        ]
        for kernel in (False, True)
    }
    first = [
        Row(
            f"{case['name']} {case['mode']}",
            *(case["first"][f"{system} cold"]["seconds"] for system in SYSTEMS),
        )
        for case in _read("cpu-first-call.json")["cases"]
    ]
    return [
        _section("Models on a CPU", name, by_kind[False], "ms", 2),
        _section("Kernels on a CPU", name, by_kind[True], "ms", 2),
        _first_calls("cpu-first-call.json", first),
    ]


def _h200_models() -> list[Row]:
    return [row for each in _read("h200-models.json")["rows"] if (row := _times(each, "ms"))]


def _h200_kernels() -> list[Row]:
    rows = []
    for each in _read("h200-kernels.json")["rows"]:
        us = each["us"]
        if "eager" in us and "flambeau" in us:
            name = f"{each['name']} {each['way']}"
            rows.append(Row(name, us["eager"], us["flambeau"], us.get("incumbent")))
    return rows


def _optimizers(device: str) -> list[Row]:
    rows = _read(f"optimizers-{device}.json")["rows"]
    return [row for each in rows if (row := _times(each, "ms"))]


def _section(title: str, source: str, rows: Sequence[Row], unit: str, digits: int) -> str:
    lines = [f"## {title}", "", _about(source), "", _summary(rows), ""]
    lines += _table(rows, unit, digits)
    lines += ["", f"### {title}: where Flambeau is slower", ""]
    losses = [row for row in rows if row.eager < row.flambeau or _beside(row) < 1]
    lines += _table(losses, unit, digits) if losses else ["Nowhere in this run."]
    return "\n".join([*lines, ""])


def _first_calls(source: str, rows: Sequence[Row]) -> str:
    """Eager's first call compiles nothing: it is listed, not compared."""
    beside = [_beside(row) for row in rows if row.incumbent is not None]
    slower = [row for row in rows if _beside(row) < 1]
    lines = [
        "## First calls on a CPU", "", _about(source), "",
        f"With empty caches. Eager compiles nothing, so its first call is always the shortest. "
        f"Beside torch.compile: {_mean(beside):.1f} times as fast in the mean of "
        f"{len(beside)} programs, {min(beside):.1f} times in the worst.", "",
        *_table(rows, "s", 2, over_eager=False), "",
        "### First calls on a CPU: where Flambeau is slower than torch.compile", "",
    ]  # fmt: skip
    lines += _table(slower, "s", 2, over_eager=False) if slower else ["Nowhere in this run."]
    return "\n".join([*lines, ""])


def _about(source: str) -> str:
    data = _read(source)
    versions = data.get("versions", {}) if isinstance(data, dict) else {}
    said = ", ".join(f"{key} {value}" for key, value in versions.items())
    return f"`benchmarks/results/{source}`" + (f": {said}." if said else ".")


def _beside(row: Row) -> float:
    return float("inf") if row.incumbent is None else row.incumbent / row.flambeau


def _mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")


def _summary(rows: Sequence[Row]) -> str:
    over = [row.eager / row.flambeau for row in rows]
    beside = [_beside(row) for row in rows if row.incumbent is not None]
    text = f"{len(rows)} rows: {_mean(over):.2f} times eager's speed in the mean"
    text += f" ({sum(each < 1 for each in over)} slower than eager)"
    if beside:
        text += f", {_mean(beside):.2f} times torch.compile's"
        text += f" ({sum(each < 1 for each in beside)} of {len(beside)} slower than it)"
    return text + "."


def _table(rows: Sequence[Row], unit: str, digits: int, over_eager: bool = True) -> list[str]:
    head = ["", f"eager, {unit}", f"Flambeau, {unit}", f"torch.compile, {unit}"]
    head += ["times eager's speed"] * over_eager + ["times torch.compile's"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for row in rows:
        known = row.incumbent is not None
        cells = [row.name, f"{row.eager:.{digits}f}", f"{row.flambeau:.{digits}f}"]
        cells += [f"{row.incumbent:.{digits}f}" if known else "failed"]
        cells += [f"{row.eager / row.flambeau:.2f}"] * over_eager
        cells += [f"{_beside(row):.2f}" if known else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


SLOWER = re.compile(r"^\| (\w+) \|.*\| (\d+\.\d+) \|$")


def _libraries() -> str:
    """Programs of libraries, of which a table in Markdown is kept."""
    source = "libraries-cpu.md"
    text = (RESULTS / source).read_text(encoding="utf-8")
    said = next(line for line in text.splitlines() if re.match(r"\d+ workloads", line))
    slower = [found for line in text.splitlines() if (found := SLOWER.match(line))]
    slower = [found for found in slower if float(found[2]) < 1]
    title = "Programs of libraries on a CPU"
    lines = [f"## {title}", "", f"`benchmarks/results/{source}`.", "", said, ""]
    lines += [f"### {title}: where Flambeau is slower", ""]
    lines += ["| program | times eager's speed |", "| --- | --- |"]
    lines += [f"| {found[1]} | {found[2]} |" for found in slower]
    return "\n".join([*lines, ""])
