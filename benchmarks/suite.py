"""The field's dashboard, on our terms: a library's architectures, eager, Flambeau, the incumbent.

    python benchmarks/suite.py --suite hf|timm|torchvision [--speedup] [--first] [-n 30]
        [--device cpu|cuda] [--limit 10] [--only resnet] [--resume]

In: a suite. Out: `OUT/SUITE-DEVICE.json`, a CSV row a model and mode, one HTML page with plots, and
a summary for each compiler (`suite_page.py`), all written after every model.
Invariant: every phase of a model is a process of its own, so that one that dies or hangs is a row
that says so, laid to the system that did it; a model that the library itself does not build is
listed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.run import run_case, versions, write
from benchmarks.suite_page import COMPILERS, Row, publish, shown, speedup, summary
from benchmarks.zoo import library

NOT_BUILT = "NotBuilt"


def measure(row: Row, chosen: argparse.Namespace, caches: str, tell: Callable[[str], None]) -> None:
    """What a row lacks of the phases that were asked for."""
    base = ["--name", row["name"], "--device", chosen.device, "--budget", str(chosen.budget)]
    base += ["--training"] * (row["mode"] == "training")
    if chosen.speedup and "steady" not in row:
        tell("steady")
        arguments = [*base, "--rounds", str(chosen.n)]
        row["steady"] = steady(arguments, chosen.systems, caches, chosen.timeout)
    if chosen.first and "first" not in row and NOT_BUILT not in said(row):
        row["first"] = first_calls(base, chosen.systems, chosen.timeout, tell)
        if all(NOT_BUILT in str(each.get("failed")) for each in row["first"].values()):
            row["steady"] = {"failed": next(iter(row["first"].values()))["failed"]}


def steady(arguments: Sequence[str], systems: Sequence[str], caches: str, timeout: float) -> Row:
    """All systems in one process; where that does not end well, each compiler beside eager, so that
    what one does is not laid to the other."""
    together = ended(["steady", *arguments, "--systems", "eager", *systems], caches, timeout)
    if "failed" not in together or NOT_BUILT in together["failed"]:
        return together
    found: Row = {"systems": {}, "together": together["failed"]}
    for system in systems:
        alone = together
        if len(systems) > 1:
            alone = ended(["steady", *arguments, "--systems", "eager", system], caches, timeout)
        alone = dict(alone)
        rows = alone.pop("systems", {})
        own = rows.pop(system, {"failed": alone.get("failed", "no result")})
        found = {**alone, **found, "systems": {**rows, **found["systems"], system: own}}
    found.pop("failed", None)
    if "eager" not in found["systems"]:
        alone = ended(["steady", *arguments, "--systems", "eager"], caches, timeout)
        if "failed" in alone:
            return {"failed": f"{NOT_BUILT}: eager does not run it: {alone['failed']}"}
        found["systems"] |= alone["systems"]
    return found


def first_calls(
    base: Sequence[str], systems: Sequence[str], timeout: float, tell: Callable[[str], None]
) -> Row:
    """Seconds of each compiler's first call, cold and then warm, each in a process of its own."""
    rows: Row = {}
    for system in systems:
        with tempfile.TemporaryDirectory() as caches:
            for temperature in ("cold", "warm"):
                tell(f"first call of {system}, {temperature}")
                arguments = ["first", *base, "--system", system]
                rows[f"{system} {temperature}"] = ended(arguments, caches, timeout)
                if "failed" in rows[f"{system} {temperature}"]:
                    break  # the second would fail in the same way, as slowly
    return rows


def ended(arguments: Sequence[str], caches: str, timeout: float) -> Row:
    """What a process gave, whatever it printed last."""
    try:
        return run_case(list(arguments), caches, timeout)
    except (ValueError, IndexError) as error:
        return {"failed": f"its last line is no result: {error}"[:300]}


def said(row: Row) -> str:
    """What ended the whole of a row, if something did."""
    return str(row.get("steady", {}).get("failed", ""))


# --- the run ------------------------------------------------------------------------------------


class Progress:
    """A line that says where the run is: rewritten on a terminal, one a model elsewhere."""

    def __init__(self, models: int) -> None:
        self.models, self.done, self.started = models, 0, time.monotonic()
        self.live = sys.stderr.isatty()

    def tell(self, text: str) -> None:
        """What is going on now; only on a terminal."""
        if self.live:
            line = f"[{self.done + 1}/{self.models}{self.left()}] {text}"
            print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)

    def finished(self, text: str, seconds: float) -> None:
        """One more is done."""
        self.done += 1
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        head = f"[{self.done}/{self.models}{self.left()}]"
        print(f"{head} {text} ({seconds:.0f} s)", flush=True)

    def left(self) -> str:
        """How long the rest takes at this pace."""
        if not self.done:
            return ""
        rest = (time.monotonic() - self.started) / self.done * (self.models - self.done)
        return f", {rest / 60:.0f} min left" if rest >= 90 else f", {rest:.0f} s left"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=sorted(library.SUITES), required=True)
    parser.add_argument("--speedup", action="store_true", help="steady times, answers, memory")
    parser.add_argument("--first", action="store_true", help="first calls, cold and warm")
    parser.add_argument("-n", type=int, default=30, help="timed rounds a model, at most")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--modes", nargs="*", default=["inference", "training"], choices=("inference", "training")
    )
    parser.add_argument("--every", action="store_true", help="all variants of every architecture")
    parser.add_argument("--only", nargs="*", default=[], help="models whose name has one of these")
    parser.add_argument("--limit", type=int, help="at most so many models")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of timing a model")
    parser.add_argument(
        "--systems", nargs="*", default=list(COMPILERS), choices=COMPILERS, help="beside eager"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a process may take")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run has done")
    parser.add_argument("--out", type=Path, default=Path("suite"), help="folder of the results")
    chosen = parser.parse_args()
    if not (chosen.speedup or chosen.first):
        chosen.speedup = chosen.first = True
    return chosen


def begun(kept: Path, chosen: argparse.Namespace) -> Row:
    """The result to go on with: what is there with `--resume`, else an empty one."""
    result: Row = {
        "suite": chosen.suite,
        "command": " ".join(["python", "benchmarks/suite.py", *sys.argv[1:]]),
        "versions": versions(chosen.device),
        "rows": [],
        "not built": {},
    }
    if not chosen.resume or not kept.exists():
        return result
    earlier = json.loads(kept.read_text())
    if earlier["versions"] != result["versions"]:
        raise SystemExit(f"{kept} was measured with {earlier['versions']}: leave out --resume")
    return {**result, "rows": earlier["rows"], "not built": earlier.get("not built", {})}


def main() -> int:
    """Run the suite; an interruption keeps what is done, for `--resume`."""
    chosen = parse()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    chosen.out.mkdir(parents=True, exist_ok=True)
    kept = chosen.out / f"{chosen.suite}-{chosen.device}.json"
    result = begun(kept, chosen)
    models = library.names(chosen.suite, chosen.every)
    if chosen.only:
        models = [name for name in models if any(part in name for part in chosen.only)]
    models = models[: chosen.limit]
    if not models:
        raise SystemExit("no model of the suite fits --only and --limit")
    try:
        _run(models, result, kept, chosen)
    except KeyboardInterrupt:
        print(f"\ninterrupted; --resume goes on from {kept}", file=sys.stderr)
    rows = result["rows"]
    if not rows:
        return 1
    publish(kept, result, chosen.device)
    for system, line in summary(rows, chosen.device).items():
        print(f"{system}: {', '.join(f'{key} {shown(value)}' for key, value in line.items())}")
    print(f"{kept.with_suffix('.csv')}\n{kept.with_suffix('.html')}")
    return 0


def _run(models: Sequence[str], result: Row, kept: Path, chosen: argparse.Namespace) -> None:
    rows: dict[tuple[str, str], Row] = {(r["name"], r["mode"]): r for r in result["rows"]}
    wanted = [(name, mode) for name in models for mode in chosen.modes]
    phases = [p for p, on in (("steady", chosen.speedup), ("first", chosen.first)) if on]
    left = [
        key
        for key in wanted
        if key[0] not in result["not built"]
        and not all(phase in rows.get(key, {}) for phase in phases)
    ]
    if len(left) < len(wanted):
        print(f"{len(wanted) - len(left)} of {len(wanted)} are done already", flush=True)
    progress = Progress(len(left))
    with tempfile.TemporaryDirectory() as caches:
        for name, mode in left:
            started = time.monotonic()
            row = dict(rows.get((name, mode), {"name": name, "mode": mode}))
            if name in result["not built"]:  # it was found out in the mode before
                progress.finished(f"{name} {mode}: not built by its library", 0.0)
                continue

            def tell(phase: str, head: str = f"{name} {mode}") -> None:
                progress.tell(f"{head}: {phase}")

            measure(row, chosen, caches, tell)
            row["seconds"] = row.get("seconds", 0.0) + time.monotonic() - started
            if NOT_BUILT in said(row):
                result["not built"][name] = said(row)
            else:
                rows[name, mode] = row
                result["rows"] = list(rows.values())
                publish(kept, result, chosen.device)
            write(kept, result)
            progress.finished(f"{name} {mode}: {_outcome(row, chosen)}", row["seconds"])


def _outcome(row: Row, chosen: argparse.Namespace) -> str:
    if NOT_BUILT in said(row):
        return f"left out, {said(row).rpartition(NOT_BUILT + ': ')[2]}"
    if said(row):
        return f"FAILED {said(row)}"
    told = []
    for system in chosen.systems:
        own = row.get("steady", {}).get("systems", {}).get(system, {})
        parts = [f"{speedup(row, system, chosen.device):.2f}x"] * ("steady" in row)
        for temperature in ("cold", "warm"):
            first = row.get("first", {}).get(f"{system} {temperature}", {})
            if "seconds" in first:
                parts.append(f"{temperature} {first['seconds']:.1f} s")
            own = {**first, **own}
        failed = f" FAILED {own['failed']}" if "failed" in own else ""
        told.append(f"{system} {', '.join(parts)}{failed}")
    return "; ".join(told)


if __name__ == "__main__":
    sys.exit(main())
