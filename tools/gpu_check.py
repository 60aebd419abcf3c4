"""Build, check and time everything that runs on a GPU, in under ten minutes.

Runs the other `gpu_*` tools and the prims' conformance kit, each within its share of the time, and
writes one page of tables: what only checks runs side by side, what times runs alone. The exit
status is 1 where something is wrong; a goal that is missed is listed with what the figures say of
it.

    bash tools/gpu.sh python3 tools/gpu_check.py --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Part:
    """A command, the seconds that it may take, and what it is for.

    timed: it has the machine to itself. optional: it says nothing of the exit status.
    """

    name: str
    title: str
    command: tuple[str, ...]
    seconds: int
    timed: bool = True
    optional: bool = False


@dataclass(frozen=True)
class Done:
    """What a part said, how it ended (0: right) and how long it took."""

    text: str
    status: int
    seconds: float


def parts(out: Path) -> list[Part]:
    """What is run, in order."""
    python = sys.executable
    tools = ROOT / "tools"

    def own(name: str, *more: str) -> tuple[str, ...]:
        return (python, str(tools / f"gpu_{name}.py"), *more)

    found = [
        Part("classes", "Kernel classes against float64",
             own("classes", "--json", str(out / "classes.json")), 90, timed=False),
        Part("conformance", "The prims' conformance kit",
             own("kit", "--json", str(out / "kit.json")), 110, timed=False),
        Part("two", "Two devices in one process", own("two"), 60, timed=False),
        Part("kernels", "Memory-bound kernels",
             own("kernels", "--json", str(out / "kernels.json")), 60),
        Part("models", "Models in bfloat16",
             own("models", "--seconds", "0.2", "--patience", "65",
                 "--json", str(out / "models.json")), 260),
        Part("attention", "Attention: library and template",
             own("attention", "--json", str(out / "attention.json")), 60),
        Part("products", "Matrix products: library and template",
             own("products", "--json", str(out / "products.json")), 90),
    ]  # fmt: skip
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is not None:
        memcheck = (sanitizer, "--tool", "memcheck", "--error-exitcode", "1")
        small = (*memcheck, *own("classes", "--small"))
        found.append(
            Part("memcheck", "compute-sanitizer, memcheck: kernel classes", small, 100, False, True)
        )
        models = (*memcheck, *own("memcheck"))
        found.append(Part("models-memcheck", "compute-sanitizer: models", models, 110, False, True))
    return found


def versions() -> dict[str, str]:
    """What was run."""
    found = {"python": platform.python_version()}
    for name in ("torch", "triton", "transformers", "timm", "torchvision"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found["gpu"] = (done.stdout.strip().splitlines() or ["none"])[0]
    return found


def run(part: Part, environment: dict[str, str]) -> Done:
    """Run one part."""
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            part.command, env=environment, capture_output=True, text=True, timeout=part.seconds
        )
        text, status = done.stdout, done.returncode
        if status:
            text += done.stderr[-2000:]
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        status = -1
    return Done(text, status, time.perf_counter() - begun)


def main() -> int:
    """Run all parts and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="*", help="only these")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    extra = os.pathsep.join([str(ROOT / "integration_tests"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": extra}
    command = " ".join(["python", "tools/gpu_check.py", *sys.argv[1:]])
    page = [f"`{command}`", "", ", ".join(f"{k} {v}" for k, v in versions().items()), ""]
    wrong: list[str] = []
    started = time.perf_counter()
    chosen = [p for p in parts(given.out) if not given.parts or p.name in given.parts]
    with ThreadPoolExecutor(len(chosen) + 1) as pool:
        checks = [(p, pool.submit(run, p, environment)) for p in chosen if not p.timed]
        done = {p.name: future.result() for p, future in checks}
    for part in sorted(chosen, key=lambda p: p.timed):
        if part.timed:
            done[part.name] = run(part, environment)
        text, status, took = (getattr(done[part.name], f) for f in ("text", "status", "seconds"))
        state = {0: "right", -1: f"not done in {part.seconds} s"}.get(status, "WRONG")
        if status and not part.optional:
            wrong.append(part.name)
        page += [f"## {part.title}: {state}, {took:.0f} s", "", "```", text.strip(), "```", ""]
        print(f"=== {part.name}: {state}, {took:.0f} s\n{text.strip()[-3500:]}", flush=True)
        (given.out / "gpu.md").write_text("\n".join(page) + "\n")  # should the machine go away
    page.append(f"All of it took {time.perf_counter() - started:.0f} s.")
    (given.out / "gpu.md").write_text("\n".join(page) + "\n")
    (given.out / "gpu.json").write_text(json.dumps({"wrong": wrong, **versions()}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
