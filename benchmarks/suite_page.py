"""Page of a suite's rows: a summary for each compiler, a CSV file, one HTML page.

In: the rows of `suite.py`. Out: figures and files. Invariant: nothing is clipped and nothing left
out: a failure or a wrong answer counts as a speedup of 1.0 and is named; what was not measured says
so. A model passes where its error against float64 is at most twice eager's (three times on a GPU)
plus a tenth of a tolerance.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

from benchmarks.run import geometric_mean
from benchmarks.systems import SYSTEMS

Row = dict[str, Any]

TOLERANCE = 1e-4
#: how many times eager's error a system may have
FACTOR = {"cpu": 2.0, "cuda": 3.0}
#: below this speedup a model counts as slower than eager
SLOWER = 0.97
COMPILERS = tuple(system for system in SYSTEMS if system != "eager")


def passes(row: Row, system: str, device: str) -> bool | None:
    """Whether a system's answers are right; None where they could not be compared."""
    if "steady" not in row:
        return None
    systems = row["steady"].get("systems", {})
    own, eager = systems.get(system, {}), systems.get("eager", {})
    if "failed" in own or "failed" in row["steady"]:
        return False
    if own.get("error") is None or eager.get("error") is None:
        return None
    return bool(own["error"] <= FACTOR[device] * eager["error"] + TOLERANCE / 10)


def failures(row: Row, system: str, device: str) -> Iterator[str]:
    """What went wrong with a system on a model, in words."""
    steady = row.get("steady", {})
    own = steady.get("systems", {}).get(system, {})
    for place, found in (("", steady), ("", own)):
        if "failed" in found:
            yield f"{place}{found['failed']}"
    if "failed" not in own and passes(row, system, device) is False and "error" in own:
        eager = steady["systems"]["eager"]["error"]
        yield f"wrong: error {own['error']:.2g} against float64, eager has {eager:.2g}"
    for temperature in ("cold", "warm"):
        first = row.get("first", {}).get(f"{system} {temperature}", {})
        if "failed" in first:
            yield f"first call, {temperature}: {first['failed']}"


def speedup(row: Row, system: str, device: str) -> float:
    """Eager's time over the system's; 1.0 for a failure or a wrong answer."""
    systems = row.get("steady", {}).get("systems", {})
    eager, own = systems.get("eager", {}).get("ms"), systems.get(system, {}).get("ms")
    right = passes(row, system, device) is not False
    return float(eager / own) if eager and own and right else 1.0


def breaks(row: Row, system: str) -> int | None:
    """Graph breaks of a system in one model; None where it did not come so far."""
    steady = row.get("steady", {})
    if system == "flambeau":
        return len(steady["report"].get("breaks", ())) if steady.get("report") else None
    found = steady.get("incumbent breaks")
    return None if found is None else int(found)


def eager_graphs(row: Row) -> int | None:
    """Graphs that Flambeau could not compile, which ran as they are."""
    report = row.get("steady", {}).get("report")
    return len(report.get("fallbacks", ())) if report else None


def peak_ratio(row: Row, system: str) -> float | None:
    """Eager's peak memory of a step over the system's, where both were measured."""
    systems = row.get("steady", {}).get("systems", {})
    eager, own = (systems.get(each, {}).get("peak_device_mib") for each in ("eager", system))
    return float(eager / own) if eager and own else None


def first_call(row: Row, system: str, temperature: str) -> float | None:
    """Seconds of a first call; None where it did not end well."""
    seconds = row.get("first", {}).get(f"{system} {temperature}", {}).get("seconds")
    return None if seconds is None else float(seconds)


def measured(rows: Sequence[Row]) -> tuple[str, ...]:
    """The compilers that were asked for, by what the rows hold."""
    found = set()
    for row in rows:
        found |= set(row.get("steady", {}).get("systems", {}))
        found |= {label.split()[0] for label in row.get("first", {})}
    return tuple(system for system in COMPILERS if system in found) or COMPILERS


def summary(rows: Sequence[Row], device: str) -> dict[str, Row]:
    """What the dashboard says of each compiler."""
    return {system: _line(rows, system, device) for system in measured(rows)}


def _line(rows: Sequence[Row], system: str, device: str) -> Row:
    timed = [row for row in rows if "steady" in row]
    judged = [passes(row, system, device) for row in timed]
    ratios = [speedup(row, system, device) for row in timed]
    compared = sum(each is not None for each in judged)
    memory = [ratio for row in timed if (ratio := peak_ratio(row, system)) is not None]
    counted = [count for row in timed if (count := breaks(row, system)) is not None]
    right = sum(each is True for each in judged)
    line: Row = {
        "models and modes": len(rows),
        "pass rate": right / compared if compared else None,
        "right": right,
        "failed or wrong (speedup 1.0)": sum(each is False for each in judged),
        "not compared (random, or no float64)": len(judged) - compared,
        "speedup (geometric mean)": geometric_mean(ratios) if ratios else None,
        "share slower than eager": sum(r < SLOWER for r in ratios) / len(ratios)
        if ratios
        else None,
        "memory ratio (eager over it)": geometric_mean(memory) if memory else None,
        "graph breaks": sum(counted) if counted else None,
        "models with a break": sum(c > 0 for c in counted) if counted else None,
    }
    if system == "flambeau":
        eager = [count for row in timed if (count := eager_graphs(row)) is not None]
        line["graphs that ran eagerly"] = sum(eager) if eager else None
    for temperature in ("cold", "warm"):
        taken = sorted(s for row in rows if (s := first_call(row, system, temperature)) is not None)
        place = f"first call {temperature}, s"
        line[f"{place}: median"] = statistics.median(taken) if taken else None
        line[f"{place}: p95"] = (
            taken[min(int(0.95 * len(taken)), len(taken) - 1)] if taken else None
        )
    return line


# --- what is written ----------------------------------------------------------------------------


CSV_COLUMNS = (
    "ms", "speedup", "right", "error against float64", "cold s", "warm s", "memory ratio", "breaks",
    "failure",
)  # fmt: skip


def publish(kept: Path, result: Row, device: str) -> None:
    """The CSV and the page beside the kept rows."""
    write_csv(kept.with_suffix(".csv"), result["rows"], device)
    kept.with_suffix(".html").write_text(page(result, device), encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Row], device: str) -> None:
    """A line a model and mode."""
    systems = measured(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        head = ["name", "mode", "eager ms", "eager error against float64"]
        for system in systems:
            head += [f"{system} {what}" for what in CSV_COLUMNS]
        out.writerow([*head, "flambeau graphs", "flambeau graphs run eagerly", "seconds taken"])
        for row in rows:
            steady = row.get("steady", {})
            found = steady.get("systems", {})
            eager = found.get("eager", {})
            line: list[Any] = [row["name"], row["mode"], eager.get("ms"), eager.get("error")]
            for system in systems:
                own = found.get(system, {})
                ratio = speedup(row, system, device) if "steady" in row else None
                line += [own.get("ms"), ratio, passes(row, system, device), own.get("error")]
                line += [first_call(row, system, each) for each in ("cold", "warm")]
                line += [peak_ratio(row, system), breaks(row, system)]
                line.append("; ".join(failures(row, system, device)))
            graphs = steady.get("report", {}).get("graphs")
            out.writerow([*line, graphs, eager_graphs(row), row.get("seconds")])


def page(result: Row, device: str) -> str:
    """One page that needs nothing else."""
    rows = result["rows"]
    lines = summary(rows, device)
    systems = tuple(lines)
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["shown"] = shown
    return templates.get_template("suite.html.j2").render(
        result=result,
        device=device,
        systems=systems,
        lines=lines,
        keys=list(dict.fromkeys(key for line in lines.values() for key in line)),
        charts=list(_charts(rows, systems, device)),
        table=[_table_row(row, systems, device) for row in rows],
        failed=[
            (f"{row['name']} {row['mode']}", system, why)
            for row in rows
            for system in systems
            for why in failures(row, system, device)
        ],
    )


def _table_row(row: Row, asked: Sequence[str], device: str) -> Row:
    systems = row.get("steady", {}).get("systems", {})
    return {
        "name": row["name"].partition("/")[2],
        "mode": row["mode"],
        "eager ms": systems.get("eager", {}).get("ms"),
        "seconds": row.get("seconds"),
        "systems": [
            {
                "speedup": speedup(row, system, device) if "steady" in row else None,
                "right": passes(row, system, device),
                "cold": first_call(row, system, "cold"),
                "warm": first_call(row, system, "warm"),
                "memory": peak_ratio(row, system),
                "breaks": breaks(row, system),
                "failed": "; ".join(failures(row, system, device)),
            }
            for system in asked
        ],
    }


def _charts(rows: Sequence[Row], systems: Sequence[str], device: str) -> Iterator[Row]:
    """Bars, a group of them a model: (label, [(value, colour's name, text)])."""
    timed = [row for row in rows if "steady" in row]
    bars: list[tuple[str, list[tuple[float, str, str]]]] = []
    for row in sorted(timed, key=lambda row: -speedup(row, systems[0], device)):
        values = []
        for system in systems:
            ratio, bad = speedup(row, system, device), passes(row, system, device) is False
            values.append((ratio, "bad" if bad else system, f"{ratio:.2f}" + " failed" * bad))
        bars.append((_label(row), values))
    if bars:
        yield _chart("Speedup over eager", bars, 1.0)
    bars = []
    for row in rows:
        pairs = [(s, t) for s in systems for t in ("cold", "warm")]
        known = [(s, t, first_call(row, s, t)) for s, t in pairs]
        values = [(x, f"{s} {t}", f"{x:.1f} s {t}") for s, t, x in known if x is not None]
        if values:
            bars.append((_label(row), values))
    if bars:
        bars.sort(key=lambda bar: -max(value for value, _, _ in bar[1]))
        yield _chart("Seconds to the end of the first call", bars, None)
    bars = []
    for row in timed:
        ratios = [(s, peak_ratio(row, s)) for s in systems]
        values = [(ratio, s, f"{ratio:.2f}") for s, ratio in ratios if ratio is not None]
        if values:
            bars.append((_label(row), values))
    if bars:
        bars.sort(key=lambda bar: -bar[1][0][0])
        yield _chart("Peak memory of a step, eager over it", bars, 1.0)


def _label(row: Row) -> str:
    return f"{row['name'].partition('/')[2]} {row['mode']}"


LEFT, RIGHT, BAR, GAP = 300, 100, 10, 6


def _chart(title: str, bars: Sequence[Any], mark: float | None) -> Row:
    """Where each bar of a chart is drawn."""
    most = max([value for _, values in bars for value, _, _ in values] + [mark or 0.0])
    scale = (900 - LEFT - RIGHT) / (most or 1.0)
    y, labels, drawn = 4, [], []
    for label, values in bars:
        labels.append((y + BAR * len(values) / 2 + 4, label))
        for value, kind, text in values:
            drawn.append((y, value * scale, kind.replace(" ", "-"), text))
            y += BAR
        y += GAP
    at = None if mark is None else LEFT + mark * scale
    return {"title": title, "height": y + 4, "labels": labels, "bars": drawn, "mark": at}


def shown(value: Any) -> str:
    """A figure for people."""
    if value is None:
        return "not measured"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
