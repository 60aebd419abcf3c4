"""Ahead-of-time autograd beside eager and the incumbent: overhead, tracing, partition, memory.

    python benchmarks/stages/aot.py --tables overhead tracing --markdown out.md --json out.json
    python benchmarks/stages/aot.py --device cuda --tables memory --models resnet18 minilm
    python benchmarks/stages/aot.py --quick

Every case runs in a process of its own. Graphs run operator by operator in all systems, so that
the tables compare this layer and not code generators. A system that fails is shown as failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.run import run_case, versions

Case = dict[str, Any]

MEMORY_MODELS = (
    "digits_cnn", "minilm", "resnet18", "mobilenet_v3_small", "vit_tiny", "gpt2_4", "llama_4",
    "t5_3",
)  # fmt: skip
LOSS_MODELS = (
    "digits_cnn", "minilm", "resnet18", "mobilenet_v3_small", "efficientnet_b0", "vit_tiny",
    "convnext_atto", "mixer_s32", "gpt2_4", "llama_4", "distilbert_3", "t5_3",
)  # fmt: skip
TRACED = ("gpt2_12", "resnet50")
SIZES = (1_000, 3_000, 10_000)
SYSTEMS = ("eager", "flambeau", "incumbent", "incumbent default")


def overhead_table(cases: list[Case]) -> list[str]:
    """Microseconds, and what each layer adds to eager."""
    rows = ["| | eager | flambeau | incumbent | flambeau adds | incumbent adds |", "|---" * 6 + "|"]
    for case in cases:
        if "failed" in case:
            return [f"FAILED: {case['failed']}"]
        for label, row in case["microseconds"].items():
            eager, own, other = (row[name] for name in SYSTEMS[:3])
            rows.append(
                f"| {label} | {eager:.2f} | {own:.2f} | {other:.2f} | {own - eager:+.2f} "
                f"| {other - eager:+.2f} |"
            )
    return rows


def tracing_table(cases: list[Case]) -> list[str]:
    """Seconds for the joint graph, first and least of three, with their ratios."""
    rows = [
        "| model | flambeau first | incumbent first | ratio | flambeau least | incumbent least "
        "| ratio |",
        "|---" * 7 + "|",
    ]
    for case in cases:
        if "failed" in case:
            rows.append(f"| {case['name']} | FAILED: {case['failed']} |" + " |" * 5)
            continue
        cells = [case["name"]]
        for which in ("first", "least"):
            own, other = (case["seconds"][name][which] for name in ("flambeau", "incumbent"))
            cells += [f"{own:.2f}", f"{other:.2f}", f"{own / other:.2f}"]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def partition_table(cases: list[Case]) -> list[str]:
    """Seconds of our passes by size of the joint graph."""
    rows = [
        "| nodes | trace | simplify | partition | saved bytes | saving everything |",
        "|---" * 6 + "|",
    ]
    for case in cases:
        if "failed" in case:
            rows.append(f"| {case['name']} | FAILED: {case['failed']} |" + " |" * 4)
            continue
        spent = [f"{case['seconds'][name]:.2f}" for name in ("trace", "simplify", "partition")]
        sizes = [f"{case[name]:,}" for name in ("saved_bytes", "saved_bytes_save_all")]
        rows.append(f"| {case['nodes']:,} | " + " | ".join([*spent, *sizes]) + " |")
    return rows


def memory_table(cases: list[Case]) -> list[str]:
    """MiB between forward and backward, at the peak, and milliseconds, by system."""
    rows = [
        "| model | saved MiB: eager / flambeau / incumbent / its default | ours over incumbent "
        "| peak MiB: the same four | ours over incumbent | ms: the same four "
        "| work twice, ours (estimated) |",
        "|---" * 7 + "|",
    ]
    for case in cases:
        if "failed" in case:
            rows.append(f"| {case['name']} | FAILED: {case['failed']} |" + " |" * 5)
            continue
        systems = case["systems"]
        cells = [case["name"]]
        for key in ("saved", "peak"):
            cells += [four(systems, key, 2**20), against(systems, key)]
        cells.append(four(systems, "ms", 1.0))
        cells.append(f"{case['report']['share']:.1%}")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def against(systems: Case, key: str) -> str:
    """A figure of ours over the least of the incumbent's two partitioners."""
    theirs = [systems[name].get(key) for name in SYSTEMS[2:]]
    own = systems["flambeau"].get(key)
    known = [size for size in theirs if size]
    return f"{own / min(known):.2f}" if own is not None and known else "-"


def four(systems: Case, key: str, unit: float) -> str:
    """A figure of each system, or that it failed."""
    return " / ".join(
        f"{systems[name][key] / unit:.2f}" if key in systems[name] else "FAILED" for name in SYSTEMS
    )


def losses_table(cases: list[Case]) -> list[str]:
    """The worst relative difference from eager in 20 steps."""
    rows = ["| model | loss of step 1 | of the last step | worst difference |", "|---" * 4 + "|"]
    for case in cases:
        if "failed" in case:
            rows.append(f"| {case['name']} | FAILED: {case['failed']} | | |")
            continue
        first, last = case["first"], case["last"]
        rows.append(
            f"| {case['name']} | {first[0]:.6f} / {first[1]:.6f} | {last[0]:.6f} / {last[1]:.6f} "
            f"| {case['worst']:.1e} |"
        )
    return rows


def curve_table(cases: list[Case]) -> list[str]:
    """Saved MiB by the part of all work done twice."""
    rows = ["| model | saved MiB (work done twice) | seconds |", "|---" * 3 + "|"]
    for case in cases:
        if "failed" in case:
            rows.append(f"| {case['name']} | FAILED: {case['failed']} | |")
            continue
        points = ", ".join(
            f"{point['saved_bytes'] / 2**20:.2f} ({point['share']:.1%})" for point in case["points"]
        )
        rows.append(f"| {case['name']} | {points} | {case['seconds']:.1f} |")
    return rows


TABLES: dict[str, tuple[str, Callable[[list[Case]], list[str]]]] = {
    "overhead": ("Call overhead, microseconds, a function of two operators", overhead_table),
    "tracing": ("Seconds from a captured graph to two halves", tracing_table),
    "partition": ("Passes by size of the joint graph, seconds", partition_table),
    "memory": ("Memory of a training step", memory_table),
    "losses": ("20 steps of SGD: losses, eager / flambeau", losses_table),
    "curve": ("Memory for work", curve_table),
}


def cases_of(table: str, models: list[str] | None) -> list[tuple[str, list[str]]]:
    """The names of a table's rows and the arguments that measure each."""
    if table == "overhead":
        return [("overhead", [])]
    if table == "partition":
        return [(f"{size:,} nodes", ["--size", str(size)]) for size in SIZES]
    known = {"tracing": TRACED, "memory": MEMORY_MODELS, "losses": LOSS_MODELS}
    names = known.get(table, ("minilm", "resnet18"))
    chosen = [name for name in names if models is None or name in models]
    return [(name, ["--name", name]) for name in chosen]


def main() -> int:
    """Run the tables asked for and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--models", nargs="*", help="only these rows of the tables by model")
    parser.add_argument("--quick", action="store_true", help="small batches: does it run at all")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument("--pictures", type=Path, help="write curves as SVG into this folder")
    parser.add_argument("--jobs", type=int, default=1, help="at once; times mean nothing above 1")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds a process may take")
    a = parser.parse_args()
    started = time.time()
    measured: dict[str, list[Case]] = {}
    head = ", ".join(f"{key} {value}" for key, value in versions(a.device).items())
    lines = [f"`{' '.join(['python', 'benchmarks/stages/aot.py', *sys.argv[1:]])}`", "", head, ""]
    with tempfile.TemporaryDirectory() as caches:
        for table in a.tables:
            title, form = TABLES[table]
            more = ["--device", a.device, *(["--quick"] if a.quick else [])]

            def measure(
                row: tuple[str, list[str]], table: str = table, more: list[str] = more
            ) -> Case:
                name, arguments = row
                command = [table, *arguments, *([] if table == "partition" else more)]
                case = run_case(command, caches, a.timeout, "stages/aot_case.py")
                print(f"{table} {name}: {'FAILED' if 'failed' in case else 'done'}", flush=True)
                return {"name": name, **case}

            with ThreadPoolExecutor(a.jobs) as pool:
                measured[table] = list(pool.map(measure, cases_of(table, a.models)))
            lines += [f"## {title}", "", *form(measured[table]), ""]
    if a.pictures:
        a.pictures.mkdir(parents=True, exist_ok=True)
        for case in measured.get("curve", []):
            if "svg" in case:
                (a.pictures / f"{case['name']}.svg").write_text(case["svg"])
    text = "\n".join(lines)
    print(text)
    if a.json:
        result = {"versions": versions(a.device), "seconds": time.time() - started}
        a.json.write_text(json.dumps({**result, "tables": measured}, indent=1))
    if a.markdown:
        a.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
