"""Eager, Flambeau and the incumbent side by side: models, single kernels, call overhead.

    python benchmarks/run.py --device cpu --json out.json
    python benchmarks/run.py --device cuda --kernels softmax rope --models none
    python benchmarks/run.py --first --models minilm digits_cnn --modes training
    python benchmarks/run.py --json out.json --resume

Every case runs in a process of its own, at most `--timeout` seconds long; steady times are medians
of interleaved calls; `--first` adds each system's first call, cold (empty caches) and warm (the
same caches again), one process each, with the bytecode of our packages on the disk as an installer
leaves it. A system that fails is recorded as failed and counts as a
speedup of 1.0. The JSON file is written after every case; `--resume` keeps the cases that it has.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.bytecode import as_installed
from benchmarks.systems import SYSTEMS, cache_environment
from benchmarks.tables import markdown, show, verdicts
from benchmarks.zoo import KERNELS, MODELS

Case = dict[str, Any]


KERNEL_MODE = {"cross_entropy_backward": "training"}
"""What a single kernel's case is called where it runs backward."""


def run_case(arguments: list[str], caches: str, timeout: float, script: str = "case.py") -> Case:
    """The JSON that a script prints on its last line, or what went wrong."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    environment = os.environ | cache_environment(caches)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no result in {timeout:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"exit {done.returncode}: {last}"[:300]}
    result: Case = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def first_calls(base: list[str], timeout: float) -> Case:
    """Seconds of the first call by system, cold and then warm, with each one's peak memory."""
    rows: Case = {}
    for system in SYSTEMS:
        with tempfile.TemporaryDirectory() as caches:
            for temperature in ("cold", "warm"):
                arguments = ["first", *base, "--system", system]
                rows[f"{system} {temperature}"] = run_case(arguments, caches, timeout)
    return rows


def versions(device: str) -> Case:
    """What was measured, and on what."""
    found = {"python": platform.python_version(), "device": device}
    for name in ("torch", "triton", "transformers", "timm", "torchvision"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    if device == "cuda":
        import torch  # the parent process needs no torch otherwise

        found["gpu"] = torch.cuda.get_device_name()
    else:
        found["cores"] = str(os.cpu_count())
    return found


def geometric_mean(values: list[float]) -> float:
    """Geometric mean; 1.0 of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def summary(cases: list[Case]) -> Case:
    """Geometric mean of the speedup over eager by system, failures counted as 1.0, unclipped."""
    means: Case = {}
    for system in SYSTEMS:
        ratios = []
        for case in cases:
            systems = case.get("steady", {}).get("systems", {})
            eager, own = systems.get("eager", {}).get("ms"), systems.get(system, {}).get("ms")
            ratios.append(eager / own if eager and own else 1.0)
        means[system] = geometric_mean(ratios)
    return means


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--resume", action="store_true", help="keep the cases in the JSON file")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    parser.add_argument("--models", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS), metavar="NAME")
    parser.add_argument("--modes", nargs="*", default=["inference", "training"])
    parser.add_argument(
        "--mode", default="default", help="of both compilers: default, reduce-overhead"
    )
    parser.add_argument(
        "--systems", nargs="*", default=list(SYSTEMS), choices=SYSTEMS, help="whom to measure"
    )
    parser.add_argument("--first", action="store_true", help="time first calls, cold and warm")
    parser.add_argument("--no-steady", action="store_true", help="leave out steady times")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of steady calls a case")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a process may take")
    arguments = parser.parse_args()
    for given, known in ((arguments.models, MODELS), (arguments.kernels, KERNELS)):
        unknown = [name for name in given if name not in known and name != "none"]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    return arguments


def known_cases(path: Path | None, resume: bool) -> dict[tuple[str, str], Case]:
    """Cases that an interrupted run left in its JSON file, by name and mode."""
    if not resume or path is None or not path.exists():
        return {}
    return {(c["name"], c["mode"]): c for c in json.loads(path.read_text())["cases"]}


def write(path: Path, result: Case) -> None:
    """Write the figures so that an interruption leaves the old file or the new one."""
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(result, indent=1))
    aside.replace(path)


def main() -> int:
    """Run the cases asked for and report."""
    a = parse()
    started = time.time()
    wanted = [(name, KERNEL_MODE.get(name, "inference")) for name in a.kernels if name != "none"]
    wanted += [(name, mode) for name in a.models if name != "none" for mode in a.modes]
    known = known_cases(a.json, a.resume)
    cases: list[Case] = []
    if a.first:
        as_installed()
    with tempfile.TemporaryDirectory() as caches:
        for position, (name, mode) in enumerate(wanted, 1):
            if (name, mode) in known:
                cases.append(known[name, mode])
                continue
            base = ["--name", name, "--device", a.device, "--budget", str(a.budget)]
            base += ["--mode", a.mode, "--systems", *a.systems]
            base += ["--training"] * (mode == "training") + ["--quick"] * a.quick
            case: Case = {"name": name, "mode": mode, "kernel": name in KERNELS}
            if a.first:
                case["first"] = first_calls(base, a.timeout)
            if not a.no_steady:
                case["steady"] = run_case(["steady", *base], caches, a.timeout)
            cases.append(case)
            show(f"[{position}/{len(wanted)}] ", case)
            if a.json:
                done = {(c["name"], c["mode"]) for c in cases}
                later = [c for key, c in known.items() if key not in done]
                write(a.json, {"cases": [*cases, *later]})
        overhead = run_case(["overhead", "--device", a.device, "--mode", a.mode], caches, a.timeout)
    result = {
        "command": " ".join(["python", "benchmarks/run.py", *sys.argv[1:]]),
        "versions": versions(a.device),
        "seconds": time.time() - started,
        "cases": cases,
        "overhead": overhead,
        "geometric mean over eager": {
            "kernels": summary([case for case in cases if case["kernel"]]),
            "models": summary([case for case in cases if not case["kernel"]]),
        },
        "verdicts": verdicts(cases),
    }
    text = markdown(result)
    print(text)
    if a.json:
        write(a.json, result)
    if a.markdown:
        a.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
