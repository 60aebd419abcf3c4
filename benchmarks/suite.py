"""The field's dashboard, on our terms: a library's architectures, eager, Flambeau, the incumbent.

    python benchmarks/suite.py --suite hf|timm|torchvision [--speedup] [-n 30] [--device cpu|cuda]

In: a suite. Out: a CSV row a model and mode, one HTML page with plots, a summary for each system:
pass rate, speedup (unclipped, failures counted as 1.0), compile seconds (median and p95, cold and
warm), memory ratio, graph breaks, share slower than eager.
Invariant: a model passes where its error against float64 is at most twice eager's (three times on
a GPU) plus a tenth of a tolerance; a model that the library itself does not build is no row.
"""

from __future__ import annotations

import argparse
import csv
import html
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.run import first_calls, geometric_mean, run_case, versions, write
from benchmarks.systems import SYSTEMS
from benchmarks.zoo import library

Row = dict[str, Any]

TOLERANCE = 1e-4
#: how many times eager's error a system may have
FACTOR = {"cpu": 2.0, "cuda": 3.0}
COMPILERS = tuple(system for system in SYSTEMS if system != "eager")


def measure(name: str, training: bool, chosen: argparse.Namespace, caches: str) -> Row:
    """One model in one mode, each phase in processes of its own."""
    base = ["--name", name, "--device", chosen.device, "--budget", str(chosen.budget)]
    base += ["--training"] * training
    row: Row = {"name": name, "mode": "training" if training else "inference"}
    if chosen.first:
        row["first"] = first_calls(base, chosen.timeout)
    if chosen.speedup:
        rounds = ["--rounds", str(chosen.n)]
        row["steady"] = run_case(["steady", *base, *rounds], caches, chosen.timeout)
    return row


def passes(row: Row, system: str, device: str) -> bool | None:
    """Whether a system's answers are right; None where they could not be compared."""
    systems = row.get("steady", {}).get("systems", {})
    own, eager = systems.get(system, {}), systems.get("eager", {})
    if "failed" in own or "failed" in row.get("steady", {}):
        return False
    if own.get("error") is None or eager.get("error") is None:
        return None
    return bool(own["error"] <= FACTOR[device] * eager["error"] + TOLERANCE / 10)


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


def peak_ratio(row: Row, system: str) -> float | None:
    """Eager's peak memory of a step over the system's, where both were measured."""
    systems = row.get("steady", {}).get("systems", {})
    eager, own = (systems.get(each, {}).get("peak_device_mib") for each in ("eager", system))
    return float(eager / own) if eager and own else None


def seconds(rows: Sequence[Row], system: str, temperature: str) -> list[float]:
    """First calls of a system, those that came to an end."""
    found = (row.get("first", {}).get(f"{system} {temperature}", {}) for row in rows)
    return sorted(each["seconds"] for each in found if "seconds" in each)


def memory_ratio(rows: Sequence[Row], system: str) -> float | None:
    """Geometric mean of eager's peak memory of a step over the system's, where it was measured."""
    ratios = [ratio for row in rows if (ratio := peak_ratio(row, system)) is not None]
    return geometric_mean(ratios) if ratios else None


def summary(rows: Sequence[Row], device: str) -> dict[str, dict[str, Any]]:
    """What the dashboard says of each compiler."""
    found: dict[str, dict[str, Any]] = {}
    for system in COMPILERS:
        judged = [passes(row, system, device) for row in rows]
        ratios = [speedup(row, system, device) for row in rows]
        line: dict[str, Any] = {
            "models": len(rows),
            "right": sum(each is True for each in judged),
            "not compared": sum(each is None for each in judged),
            "failed or wrong": sum(each is False for each in judged),
            "speedup (geometric mean)": geometric_mean(ratios),
            "slower than eager": sum(each < 0.97 for each in ratios) / max(len(ratios), 1),
            "memory ratio (eager over it)": memory_ratio(rows, system),
        }
        for temperature in ("cold", "warm"):
            taken = seconds(rows, system, temperature)
            line[f"first call {temperature} s: median"] = (
                statistics.median(taken) if taken else None
            )
            line[f"first call {temperature} s: p95"] = (
                taken[min(int(0.95 * len(taken)), len(taken) - 1)] if taken else None
            )
        counted = [count for row in rows if (count := breaks(row, system)) is not None]
        line["graph breaks"] = sum(counted) if counted else None
        found[system] = line
    return found


# --- what is written --------------------------------------------------------------------------


CSV_COLUMNS = (
    "ms", "speedup", "right", "error against float64", "cold s", "warm s", "memory ratio", "breaks",
    "failure",
)  # fmt: skip


def write_csv(path: Path, rows: Sequence[Row], device: str) -> None:
    """A line a model and mode."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        head = ["name", "mode", "eager ms", "eager error against float64"]
        for system in COMPILERS:
            head += [f"{system} {what}" for what in CSV_COLUMNS]
        out.writerow([*head, "flambeau graphs"])
        for row in rows:
            steady = row.get("steady", {})
            systems = steady.get("systems", {})
            eager = systems.get("eager", {})
            line: list[Any] = [row["name"], row["mode"], eager.get("ms"), eager.get("error")]
            for system in COMPILERS:
                line += [systems.get(system, {}).get("ms"), speedup(row, system, device)]
                line += [passes(row, system, device), systems.get(system, {}).get("error")]
                for temperature in ("cold", "warm"):
                    first = row.get("first", {}).get(f"{system} {temperature}", {})
                    line.append(first.get("seconds"))
                line += [peak_ratio(row, system), breaks(row, system)]
                line.append(str(systems.get(system, {}).get("failed", "")))
            out.writerow([*line, steady.get("report", {}).get("graphs")])


def publish(kept: Path, result: Row, device: str) -> None:
    """The CSV and the page beside the kept rows."""
    write_csv(kept.with_suffix(".csv"), result["rows"], device)
    kept.with_suffix(".html").write_text(page(result, device), encoding="utf-8")


def page(result: Row, device: str) -> str:
    """One page that needs nothing else: the summary, and a bar a model for each compiler."""
    rows, lines = result["rows"], summary(result["rows"], device)
    parts = [
        "<!doctype html><meta charset=utf-8><title>Suite</title><style>body{font:14px sans-serif;"
        "max-width:70em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}"
        "td:first-child{text-align:left}</style>",
        f"<h1>{html.escape(result['suite'])} on {html.escape(device)}</h1>",
        f"<p><code>{html.escape(result['command'])}</code><br>",
        html.escape(", ".join(f"{k} {v}" for k, v in result["versions"].items())), "</p><table>",
        "<tr><th></th>", *(f"<th>{system}</th>" for system in COMPILERS), "</tr>",
    ]  # fmt: skip
    keys = dict.fromkeys(key for line in lines.values() for key in line)
    for key in keys:
        cells = "".join(f"<td>{_shown(lines[system].get(key))}</td>" for system in COMPILERS)
        parts.append(f"<tr><td>{key}</td>{cells}</tr>")
    parts.append("</table>")
    for system in COMPILERS:
        parts += [f"<h2>Speedup of {system} over eager</h2>", _bars(rows, system, device)]
    for system in COMPILERS:
        drawn = _first_calls(rows, system)
        if drawn:
            parts += [f"<h2>Seconds to the end of {system}'s first call</h2>", drawn]
    return "\n".join(parts)


def _first_calls(rows: Sequence[Row], system: str) -> str:
    """A row a model: cold in the dark colour, warm over it in the light one."""
    found = []
    for row in rows:
        firsts = [row.get("first", {}).get(f"{system} {each}", {}) for each in ("cold", "warm")]
        cold, warm = (each.get("seconds") for each in firsts)
        if cold is not None:
            found.append((cold, warm, f"{row['name']} {row['mode']}"))
    if not found:
        return ""
    scale = 300 / max(cold for cold, _, _ in found)
    out = [f'<svg width="760" height="{16 * len(found) + 4}" font-size="11">']
    for place, (cold, warm, label) in enumerate(sorted(found, key=lambda each: -each[0])):
        y = 16 * place
        told = f"{cold:.2f} s cold" + (f", {warm:.2f} s warm" if warm is not None else "")
        out.append(
            f'<text x="300" y="{y + 11}" text-anchor="end">{html.escape(label)}</text>'
            f'<rect x="305" y="{y + 2}" width="{cold * scale:.1f}" height="11" fill="#79a"/>'
            f'<rect x="305" y="{y + 5}" width="{(warm or 0) * scale:.1f}" height="5" fill="#fc6"/>'
            f'<text x="{308 + cold * scale:.1f}" y="{y + 11}">{told}</text>'
        )
    return "".join([*out, "</svg>"])


def _bars(rows: Sequence[Row], system: str, device: str) -> str:
    """Bars by speedup, with a line at 1.0; failures are red."""
    ordered = sorted(rows, key=lambda row: -speedup(row, system, device))
    scale = 400 / max([speedup(row, system, device) for row in rows] + [1.0])
    height = 16 * len(ordered) + 4
    out = [f'<svg width="760" height="{height}" font-size="11">']
    for place, row in enumerate(ordered):
        ratio, y = speedup(row, system, device), 16 * place
        failed = passes(row, system, device) is False
        colour = "#c33" if failed else "#2a7" if ratio >= 1 else "#d90"
        label = html.escape(f"{row['name']} {row['mode']}")
        out.append(
            f'<text x="300" y="{y + 11}" text-anchor="end">{label}</text>'
            f'<rect x="305" y="{y + 2}" width="{ratio * scale:.1f}" height="11" fill="{colour}"/>'
            f'<text x="{308 + ratio * scale:.1f}" y="{y + 11}">{ratio:.2f}</text>'
        )
    line = 305 + scale
    out.append(f'<line x1="{line}" x2="{line}" y1="0" y2="{height}" stroke="#333"/></svg>')
    return "".join(out)


def _shown(value: Any) -> str:
    if value is None:
        return "not measured"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=sorted(library.SUITES), required=True)
    parser.add_argument("--speedup", action="store_true", help="steady times and answers")
    parser.add_argument("--first", action="store_true", help="first calls, cold and warm")
    parser.add_argument("-n", type=int, default=30, help="timed rounds a model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--modes", nargs="*", default=["inference", "training"])
    parser.add_argument("--every", action="store_true", help="all variants of every architecture")
    parser.add_argument("--only", nargs="*", default=[], help="models whose name has one of these")
    parser.add_argument("--limit", type=int, help="at most so many models")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of timing a model")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process may take")
    parser.add_argument("--out", type=Path, default=Path("suite"), help="folder of the results")
    chosen = parser.parse_args()
    if not (chosen.speedup or chosen.first):
        chosen.speedup = chosen.first = True
    return chosen


def main() -> int:
    """Run the suite; what is done is kept after every model, and a later run goes on from there."""
    chosen = parse()
    chosen.out.mkdir(parents=True, exist_ok=True)
    kept = chosen.out / f"{chosen.suite}-{chosen.device}.json"
    rows: list[Row] = json.loads(kept.read_text())["rows"] if kept.exists() else []
    done = {(row["name"], row["mode"]) for row in rows}
    models = library.names(chosen.suite, chosen.every)
    if chosen.only:
        models = [name for name in models if any(part in name for part in chosen.only)]
    models = models[: chosen.limit]
    result: Row = {
        "suite": chosen.suite,
        "command": " ".join(["python", "benchmarks/suite.py", *sys.argv[1:]]),
        "versions": versions(chosen.device),
        "rows": rows,
    }
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as caches:
        for number, name in enumerate(models, 1):
            for mode in chosen.modes:
                if (name, mode) in done:
                    continue
                row = measure(name, mode == "training", chosen, caches)
                told = str(row.get("steady", {}).get("failed", ""))
                if "NotBuilt" in told:
                    print(f"[{number}/{len(models)}] {name} {mode}: not built: {told}", flush=True)
                    continue
                rows.append(row)
                write(kept, result)
                publish(kept, result, chosen.device)
                ratios = [f"{s} {speedup(row, s, chosen.device):.2f}x" for s in COMPILERS]
                spent = time.monotonic() - started
                text = f"{name} {mode}: {', '.join(ratios)} {told}"
                print(f"[{number}/{len(models)}] {spent:6.0f} s {text}", flush=True)
    publish(kept, result, chosen.device)
    for system, line in summary(rows, chosen.device).items():
        print(f"{system}: {', '.join(f'{key} {_shown(value)}' for key, value in line.items())}")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
