"""The goals of the GPU backend, each met or missed, by what this folder's other tools have left.

In: a folder with their JSON files, and how the parts ended. Out: a line a goal, with its figure.
Invariant: a goal of which nothing was measured is neither met nor missed, and says so.

    python3 tools/gpu/goals.py FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Rows = Sequence[Row]
LEVEL = 0.98
"""Of another's speed: two samples of one kernel differ by this much."""
TEN_MINUTES = 600.0
NOTHING = "nothing to check"
"""What a part says that found no devices for it."""


PARTS = (
    ("conformance", "the prims' conformance kit"),
    ("classes", "kernel classes against float64"),
    ("memcheck", "kernel classes under compute-sanitizer"),
    ("models-memcheck", "two small models under compute-sanitizer"),
    ("two", "two devices in one process"),
)
"""Parts that are right or wrong."""


@dataclass(frozen=True)
class Goal:
    """What is asked for, what there is, and whether that is enough (None: nothing is known)."""

    text: str
    figure: str
    met: bool | None

    @property
    def line(self) -> str:
        state = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return f"{state}: {self.text}: {self.figure}"


def mean(ratios: Sequence[float]) -> float:
    """Geometric."""
    return exp(sum(map(log, ratios)) / max(1, len(ratios)))


def share(text: str, rows: Rows, good: Callable[[Row], bool], name: Callable[[Row], str]) -> Goal:
    """All of the rows have to be good; those that are not are named."""
    if not rows:
        return Goal(text, "no rows", None)
    bad = [name(row) for row in rows if not good(row)]
    more = f" (not: {'; '.join(bad[:12])}{' ...' if len(bad) > 12 else ''})" if bad else ""
    return Goal(text, f"{len(rows) - len(bad)} of {len(rows)}{more}", not bad)


def of_kernels(kept: Row) -> list[Goal]:
    """Kernels bound by memory."""
    rows = [row for row in kept.get("rows", ()) if "flambeau" in row["us"]]

    def copied(row: Row) -> float:
        return float(row["gbs"]["flambeau"] / row["copy"])

    def name(row: Row) -> str:
        return f"{row['name']} {row['way']} {copied(row):.0%}"

    found = []
    for goal in sorted({row["goal"] for row in rows}, reverse=True):
        some = [row for row in rows if row["goal"] == goal]
        text = f"kernels bound by memory, {goal:.0%} of a copy's bandwidth"
        found.append(share(text, some, lambda r: copied(r) >= r["goal"], name))
    found.append(
        share(
            "none below eager",
            [row for row in rows if "eager" in row["us"]],
            lambda r: r["us"]["flambeau"] * LEVEL <= r["us"]["eager"],
            lambda r: f"{r['name']} {r['way']} {r['us']['eager'] / r['us']['flambeau']:.2f}x",
        )
    )
    both = [
        row["us"]["incumbent"] / row["us"]["flambeau"] for row in rows if "incumbent" in row["us"]
    ]
    text = "kernels bound by memory, geometric mean 1.5x the incumbent"
    figure = f"{mean(both):.2f}x on {len(both)}" if both else "no rows"
    found.append(Goal(text, figure, mean(both) >= 1.5 if both else None))
    found.append(
        share(
            "kernels' errors against float64, at most 2x eager's, 3x in half precision",
            kept.get("rows", ()),
            lambda r: (
                "flambeau" not in r["failed"] and r["error"].get("flambeau", 0.0) <= r["allowed"]
            ),
            lambda r: f"{r['name']} {r['way']}",
        )
    )
    return found


def of_products(rows: Rows) -> list[Goal]:
    """Matrix products."""

    def shape(row: Row) -> str:
        return "x".join(map(str, row["shape"]))

    return [
        share(
            "matrix products, 90 % of cuBLAS",
            rows,
            lambda r: r["share"] >= 0.9,
            lambda r: f"{shape(r)} {r['share']:.0%}",
        ),
        share(
            "faster than cuBLAS and the loop behind it",
            rows,
            lambda r: r["fused_share"] > 1,
            lambda r: f"{shape(r)} {r['fused_share']:.0%}",
        ),
    ]


def of_cases(title: str, rows: Rows) -> list[Goal]:
    """Convolutions and grouped products, for which there is no number: 90 % as of products."""

    def name(row: Row) -> str:
        return f"{'x'.join(map(str, row['case']))} {row['share']:.0%}"

    return [
        share(f"{title}, 90 % of the library", rows, lambda r: r["share"] >= 0.9, name),
        share(
            f"{title}, faster with what follows",
            rows,
            lambda r: r["fused_share"] > 1,
            lambda r: f"{'x'.join(map(str, r['case']))} {r['fused_share']:.0%}",
        ),
    ]


def of_attention(rows: Rows) -> list[Goal]:
    """Attention, forth and back."""
    return [
        share(
            f"attention {way}, 80 % of the library's best",
            [row for row in rows if row["way"] == way],
            lambda r: r["own"] >= 0.8 * r["best"],
            lambda r: f"{r['case']} {r['own'] / r['best']:.0%}",
        )
        for way in ("forward", "backward")
    ]


def of_models(kept: Row) -> list[Goal]:
    """Models, a failing one as fast as eager."""
    rows = kept.get("rows", ())
    mode = kept.get("modes", ["", "default"])[1]
    times, other = (1.25, "default") if mode == "default" else (1.0, mode)
    text = (
        f"models, geometric mean of the speed over eager at least {times}x the incumbent's {other}"
    )
    if not rows:
        return [Goal(text, "no rows", None)]

    def name(row: Row) -> str:
        return f"{row['name']} {'training' if row['training'] else 'inference'}"

    def own(row: Row, key: str, system: str = "flambeau") -> float | None:
        value = row.get("systems", {}).get(system, {}).get(key)
        return None if value is None else float(value)

    def faster(row: Row, system: str) -> float:
        eager, mine = own(row, "ms", "eager"), own(row, "ms", system)
        return eager / mine if eager and mine else 1.0

    def right(row: Row) -> bool:
        mine, eager = own(row, "error"), own(row, "error", "eager")
        return own(row, "ms") is not None and (
            mine is None or eager is None or mine <= 3 * eager + 1e-6
        )

    found = []
    for training in (False, True):
        some = [row for row in rows if row["training"] == training]
        if some:
            ours = mean([faster(row, "flambeau") for row in some])
            theirs = mean([faster(row, "incumbent") for row in some])
            what = "training" if training else "inference"
            figure = f"{ours:.2f}x of eager and {theirs:.2f}x: {ours / theirs:.2f}x"
            found.append(Goal(f"{text}, {what}", figure, ours >= times * theirs))
    found += [
        share(
            "models, none slower than eager",
            rows,
            lambda r: own(r, "ms") is not None and faster(r, "flambeau") >= LEVEL,
            name,
        ),
        share(
            "models, peak memory not above the incumbent's",  # what it records is not counted
            [row for row in rows if mode == "default" and own(row, "mib", "incumbent")],
            lambda r: (own(r, "mib") or 0.0) <= 1.02 * (own(r, "mib", "incumbent") or 0.0) + 1,
            lambda r: f"{name(r)} {own(r, 'mib') or 0:.0f} of {own(r, 'mib', 'incumbent'):.0f} MiB",
        ),
        share("models' errors, at most 3x eager's in half precision", rows, right, name),
    ]
    colds = [
        (mine, other)
        for row in rows
        if (mine := own(row, "first")) and (other := own(row, "first", "incumbent"))
    ]
    text = "cold first call, half of the incumbent's (all models at once)"
    if not colds:
        return [*found, Goal(text, "no rows", None)]
    middle = mean([mine / other for mine, other in colds])
    fast = sum(mine <= 0.5 * other for mine, other in colds)
    figure = f"{middle:.2f} of it in the geometric mean, {fast} of {len(colds)} at half"
    return [*found, Goal(text, figure, middle <= 0.5)]


def of_parts(states: Mapping[str, str], seconds: float) -> list[Goal]:
    """What is right or wrong, and how long all of it took."""
    found = []
    for name, title in PARTS:
        state = states.get(name, "not run")
        met = None if state in ("not run", NOTHING) else state == "right"
        found.append(Goal(title, state, met))
    met = seconds <= TEN_MINUTES if "models" in states else None  # the last one
    return [*found, Goal("all in ten minutes", f"{seconds:.0f} s", met)]


def goals(folder: Path) -> list[Goal]:
    """All of them."""

    def kept(name: str, empty: Any) -> Any:
        path = folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else empty

    found = of_kernels(kept("kernels", {}))
    found += of_products(kept("products", []))
    found += of_attention(kept("attention", []))
    found += of_cases("convolutions", kept("convolutions", []))
    found += of_cases("grouped products and batches", kept("grouped", []))
    found += of_models(kept("models", {}))
    whole = kept("gpu", {})
    return [*found, *of_parts(whole.get("states", {}), whole.get("seconds", 0.0))]


def main() -> int:
    """Say them."""
    for goal in goals(Path(sys.argv[1])):
        print(goal.line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
