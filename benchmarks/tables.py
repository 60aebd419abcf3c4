"""Results as text: a line while running, Markdown tables at the end.

In: the dictionaries of `run.py`. Out: text. Invariant: a failure is shown as one, never left out.
"""

from __future__ import annotations

import os
from typing import Any

Case = dict[str, Any]
SYSTEMS = ("eager", "flambeau", "incumbent")

ROUNDING = 2**-24
"""Relative error of rounding a result once: no system is held to less."""

COPY_SHARE = 0.8
"""Of the bandwidth of a plain copy in the same run: what a single kernel is to reach."""


def grid(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def load() -> float:
    """Programs that the machine runs besides, for each of its cores."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def show(prefix: str, case: Case) -> None:
    """One line of progress."""
    parts = [f"{prefix}{case['name']} {case['mode']}"]
    for label, row in case.get("first", {}).items():
        parts.append(f"{label} {seconds(row)}")
    steady = case.get("steady", {})
    if "failed" in steady:
        parts.append(f"FAILED {steady['failed']}")
    for system, row in steady.get("systems", {}).items():
        parts.append(f"{system} {milliseconds(row)}")
    print("; ".join(parts), flush=True)


def markdown(result: Case) -> str:
    """All the tables of a run."""
    versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items())
    lines = [f"`{result['command']}`", "", versions, ""]
    first = [case for case in result["cases"] if case.get("first")]
    if first:
        lines += ["## First call, seconds", *first_table(first), ""]
    steady = [case for case in result["cases"] if "steady" in case]
    if steady:
        lines += ["## Steady, milliseconds (median, interleaved)", *steady_table(steady), ""]
        for group, means in result["geometric mean over eager"].items():
            text = ", ".join(f"{system} {value:.2f}x" for system, value in means.items())
            lines.append(f"Geometric mean over eager, {group} (failures count as 1.0): {text}")
        lines.append("")
        lines += [*verdict_lines(result["verdicts"]), ""]
    lines += ["## Call overhead, microseconds a call of a two-tensor function"]
    lines += overhead_table(result["overhead"])
    return "\n".join(lines) + "\n"


def verdicts(cases: list[Case]) -> dict[str, list[str]]:
    """By what is wrong with it, the cases where Flambeau falls short of the goals."""
    found: dict[str, list[str]] = {"failed": [], "inexact": [], "slower than eager": []}
    found["below a copy"] = []
    for case in cases:
        if "steady" not in case:
            continue
        name = f"{case['name']} {case['mode']}"
        rows = case["steady"].get("systems", {})
        eager, own = rows.get("eager", {}), rows.get("flambeau", {})
        if "ms" not in own or "ms" not in eager:
            found["failed"].append(name)
            continue
        error, allowed = own.get("error"), eager.get("error")
        if error is not None and allowed is not None and error > 2 * allowed + ROUNDING:
            found["inexact"].append(f"{name} ({error:.1e}, eager {allowed:.1e})")
        if own["ms"] > 1.03 * eager["ms"]:
            found["slower than eager"].append(f"{name} ({eager['ms'] / own['ms']:.2f}x)")
        copy = case["steady"].get("copy GB/s")
        if copy is not None and own["GB/s"] < COPY_SHARE * copy:
            found["below a copy"].append(f"{name} ({own['GB/s'] / copy:.0%})")
    return found | {"below the fastest copy": below_the_fastest_copy(cases)}


def below_the_fastest_copy(cases: list[Case]) -> list[str]:
    """What moves less than that share of the fastest copy of the whole run: the same copy runs at
    one of two speeds on some machines, from process to process."""
    timed = [case for case in cases if "copy GB/s" in case.get("steady", {})]
    fastest = max((case["steady"]["copy GB/s"] for case in timed), default=0.0)
    moved = {
        f"{case['name']} {case['mode']}": case["steady"]["systems"].get("flambeau", {}).get("GB/s")
        for case in timed
    }
    return [
        f"{name} ({speed / fastest:.0%})"
        for name, speed in moved.items()
        if speed is not None and speed < COPY_SHARE * fastest
    ]


def verdict_lines(found: dict[str, list[str]]) -> list[str]:
    """The same as text: nothing is left out, not even that there is nothing."""
    less = f"Moves less than {COPY_SHARE:.0%} of what"
    meaning = {
        "failed": "Failed, or no result in time",
        "inexact": "Error against float64 above twice eager's",
        "slower than eager": "Slower than eager by more than 3 %",
        "below a copy": f"{less} a plain copy moves in the same process",
        "below the fastest copy": f"{less} the run's fastest copy moves",
    }
    return [f"{text}: {', '.join(found[key]) or 'none'}." for key, text in meaning.items()]


def first_table(cases: list[Case]) -> list[str]:
    """Cold and warm first calls with ratios to the incumbent, and peak memory."""
    rows = [
        "| case | flambeau cold | incumbent cold | ratio | flambeau warm | incumbent warm | ratio "
        "| peak MiB flambeau / incumbent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        cells = [f"{case['name']} {case['mode']}"]
        for temperature in ("cold", "warm"):
            ours = case["first"][f"flambeau {temperature}"]
            theirs = case["first"][f"incumbent {temperature}"]
            cells += [seconds(ours), seconds(theirs)]
            if "seconds" in ours and "seconds" in theirs:
                cells.append(f"{ours['seconds'] / theirs['seconds']:.2f}")
            else:
                cells.append("-")
        peaks = [case["first"][f"{system} cold"].get("peak_mib") for system in SYSTEMS[1:]]
        cells.append(" / ".join(f"{peak:.0f}" if peak else "-" for peak in peaks))
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def steady_table(cases: list[Case]) -> list[str]:
    """Times, speedups, bandwidth and errors."""
    rows = [
        "| case | eager | flambeau | incumbent | flambeau over eager | incumbent over eager "
        "| GB/s eager / flambeau / incumbent / a copy | error eager / flambeau / incumbent "
        "| device MiB eager / flambeau / incumbent |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        name = f"{case['name']} {case['mode']}"
        steady = case["steady"]
        if "failed" in steady:
            rows.append(f"| {name} | FAILED: {steady['failed']} |" + " |" * 7)
            continue
        systems = steady["systems"]
        cells = [name] + [milliseconds(systems.get(s, {})) for s in SYSTEMS]
        cells += [ratio(systems.get("eager", {}), systems.get(s, {})) for s in SYSTEMS[1:]]
        bandwidth, errors, peaks = (
            " / ".join(number(systems.get(s, {}).get(key), style) for s in SYSTEMS)
            for key, style in (("GB/s", ".1f"), ("error", ".1e"), ("peak_device_mib", ".0f"))
        )
        cells += [f"{bandwidth} / {number(steady.get('copy GB/s'), '.1f')}", errors, peaks]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def overhead_table(overhead: Case) -> list[str]:
    """Microseconds a call."""
    if "failed" in overhead:
        return [f"FAILED: {overhead['failed']}"]
    rows = ["| | eager | flambeau | incumbent |", "|---|---|---|---|"]
    for label, row in overhead["microseconds"].items():
        cells = [label] + [number(row.get(system), ".1f") for system in SYSTEMS]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def number(value: float | None, style: str) -> str:
    """A figure, or a dash."""
    return "-" if value is None else format(value, style)


def seconds(row: Case) -> str:
    """A first call."""
    return f"{row['seconds']:.2f}" if "seconds" in row else f"FAILED: {row['failed']}"


def milliseconds(row: Case) -> str:
    """A steady time."""
    if not row:
        return "-"
    return f"{row['ms']:.3f}" if "ms" in row else f"FAILED: {row.get('failed')}"


def ratio(eager: Case, own: Case) -> str:
    """Speedup over eager."""
    if not own or not eager:
        return "-"
    return f"{eager['ms'] / own['ms']:.2f}x" if "ms" in own and "ms" in eager else "1.00x (failed)"
