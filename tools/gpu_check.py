"""Build, check and time everything that runs on a GPU, in under ten minutes.

Runs the other `gpu_*` tools and the prims' conformance kit one after the other, each within its
share of the time, and writes one page of tables. The exit status is 1 where something is wrong;
a goal that is missed is listed with what the figures say of it.

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
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Part:
    """A command, the seconds that it may take, and what it is for."""

    name: str
    title: str
    command: tuple[str, ...]
    seconds: int
    optional: bool = False


def parts(out: Path) -> list[Part]:
    """What is run, in order."""
    python = sys.executable
    tools = ROOT / "tools"
    found = [
        Part("classes", "Kernel classes against float64",
             (python, str(tools / "gpu_classes.py"), "--json", str(out / "classes.json")), 60),
        Part("kernels", "Memory-bound kernels",
             (python, str(tools / "gpu_kernels.py"), "--json", str(out / "kernels.json")), 90),
        Part("products", "Matrix products: library and template",
             (python, str(tools / "gpu_products.py"), "--json", str(out / "products.json")), 90),
        Part("attention", "Attention: library and template",
             (python, str(tools / "gpu_attention.py"), "--json", str(out / "attention.json")), 60),
        Part("models", "Models in bfloat16",
             (python, str(tools / "gpu_models.py"), "--seconds", "0.6",
              "--json", str(out / "models.json")), 330),
        Part("conformance", "The prims' conformance kit",
             (python, str(tools / "gpu_kit.py"), "--json", str(out / "kit.json")), 110),
    ]  # fmt: skip
    two = (python, str(tools / "gpu_two.py"))
    found.append(Part("two", "Two devices in one process", two, 60))
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is not None:
        small = (sanitizer, "--tool", "memcheck", python, str(tools / "gpu_classes.py"), "--small")
        found.append(Part("memcheck", "compute-sanitizer, memcheck", small, 60, optional=True))
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
    for part in parts(given.out):
        if given.parts and part.name not in given.parts:
            continue
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
        took = time.perf_counter() - begun
        state = {0: "right", -1: f"not done in {part.seconds} s"}.get(status, "WRONG")
        if status and not part.optional:
            wrong.append(part.name)
        page += [f"## {part.title}: {state}, {took:.0f} s", "", "```", text.strip(), "```", ""]
        print(f"=== {part.name}: {state}, {took:.0f} s\n{text.strip()[-3500:]}", flush=True)
    page.append(f"All of it took {time.perf_counter() - started:.0f} s.")
    (given.out / "gpu.md").write_text("\n".join(page) + "\n")
    (given.out / "gpu.json").write_text(json.dumps({"wrong": wrong, **versions()}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
