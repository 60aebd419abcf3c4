"""Build, checks and times of everything that runs on a GPU, in under ten minutes.

Runs the other tools of this folder and the prims' conformance kit, each within its share of the
time, and writes one page of tables after each of them: what only checks runs side by side, what
times runs alone, and what runs under compute-sanitizer does so after the other checks, for beside
processes that keep the GPU busy it waits for it at every launch. What races templates runs beside
the checks once before, with less right to the processors, so that Triton has its kernels when it is
timed; what that run says is not used. A part that did not end is named as such with what it had
said, and all of its processes are ended. The exit status is 1 where something is wrong; at the end
every goal is listed, met or missed, with its figure (`goals.py`).

    bash tools/gpu.sh python3 tools/gpu/check.py --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from goals import NOTHING, goals

UNENDED, UNRUN = 1000, 1001
"""In the place of an exit status; those of the system are smaller."""
TOOLS = Path(__file__).parent
RACES = ("attention", "convolutions", "grouped", "products")
SCRIPTS = {
    "classes": TOOLS / "kernel_classes.py",
    "kernels": TOOLS / "single_kernels.py",
    "two": TOOLS / "two_devices.py",
    **{name: TOOLS / f"{name}.py" for name in ("kit", "memcheck", "models")},
    **{name: TOOLS / "races" / f"{name}.py" for name in RACES},
}
EARLY = (("products", 3), ("attention", 2), ("grouped", 2), ("convolutions", 2))
"""What is compiled early, in how many processes each."""
MOST_CASES = 40
"""Of what is compiled early."""


@dataclass(frozen=True)
class Part:
    """A command, the seconds that it may take, and what it is for. What an `early` one says, and
    whether it ends, is of no account: it has what it compiles compiled."""

    name: str
    title: str
    command: tuple[str, ...]
    seconds: int
    early: bool = False


@dataclass(frozen=True)
class Done:
    """What a part said, how it ended (0: right) and how long it took."""

    text: str
    status: int
    seconds: float


def stages(out: Path) -> list[list[Part]]:
    """What is run: one stage after the other, the parts of each at once."""
    python = sys.executable

    def own(name: str, *more: str) -> tuple[str, ...]:
        return (python, str(SCRIPTS[name]), *more)

    def kept(name: str, *more: str) -> tuple[str, ...]:
        return own(name, "--json", str(out / f"{name}.json"), *more)

    def early(name: str, number: int, of: int) -> Part:
        cases = [str(each) for each in range(MOST_CASES) if each % of == number]
        command = ("nice", "-n", "10", *own(name, "--cases", *cases))
        return Part(name, f"{name}, compiled early", command, 110, early=True)

    limits = ("--seconds", "0.2", "--patience", "110", "--timeout", "215")
    models = own("models", *limits, "--json", str(out / "models.json"))
    found = [
        [
            Part("conformance", "The prims' conformance kit", kept("kit", "--seconds", "140"), 150),
            Part("classes", "Kernel classes against float64", kept("classes"), 90),
            Part("two", "Two devices in one process", own("two"), 60),
            *(early(name, number, of) for name, of in EARLY for number in range(of)),
        ],
        [Part("kernels", "Memory-bound kernels: who is how fast", kept("kernels"), 90)],
        [Part("attention", "Attention: library and template", kept("attention"), 60)],
        [Part("products", "Matrix products: library and template", kept("products"), 90)],
        [Part("grouped", "Grouped products: library and template", kept("grouped"), 70)],
        [Part("convolutions", "Convolutions: library and template", kept("convolutions"), 60)],
        [Part("models", "Models in bfloat16", models, 320)],
    ]
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is not None:
        # Triton's and C++ compilers, started by several threads at once, are not looked at
        alone = ("--target-processes", "application-only")
        memcheck = (sanitizer, *alone, "--tool", "memcheck", "--error-exitcode", "1")
        small = (
            ("memcheck", "kernel classes", own("classes", "--small")),
            ("models-memcheck", "two small models in training", own("memcheck")),
        )
        found.insert(
            1,
            [
                Part(name, f"compute-sanitizer, memcheck: {title}", (*memcheck, *command), 60)
                for name, title, command in small
            ],
        )
    return found


def versions() -> dict[str, str]:
    """What was run."""
    found = {"python": platform.python_version()}
    for name in ("torch", "triton", "transformers", "timm", "torchvision"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    if shutil.which("nvidia-smi") is None:
        return found | {"gpu": "none"}
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    found["gpu"] = (done.stdout.strip().splitlines() or ["none"])[0]
    return found


def run(part: Part, environment: dict[str, str], seconds: float) -> Done:
    """Run one part; when its time is over, end it and all that it has started."""
    seconds = min(seconds, part.seconds)
    if seconds < 1:
        return Done("", UNRUN, 0.0)
    begun = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as said,
        tempfile.TemporaryFile("w+") as complained,
        tempfile.TemporaryDirectory() as caches,
    ):
        if part.early:  # what it measures among others is no measurement: it is not kept
            environment = environment | {"FLAMBEAU_CACHE_DIR": caches}
        process = subprocess.Popen(
            part.command, env=environment, stdout=said, stderr=complained, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = UNENDED
        finally:
            with suppress(ProcessLookupError):  # nobody of the session is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        complained.seek(0)
        text = said.read() + (complained.read()[-2000:] if status else "")
    return Done(text, status, time.perf_counter() - begun)


@dataclass
class Page:
    """What there is to say so far, written to `out` after each part."""

    out: Path
    lines: list[str]
    versions: dict[str, str]
    wrong: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def add(self, part: Part, done: Done) -> None:
        """A part has ended, or has been ended."""
        seconds, status = done.seconds, done.status
        ends = {0: "right", UNENDED: f"DID NOT END in {seconds:.0f} s", UNRUN: "no time was left"}
        state = ends.get(status, f"WRONG (exit status {status})")
        if part.early:
            print(f"=== {part.title}: {seconds:.0f} s", flush=True)
            return
        self.states[part.name] = NOTHING if NOTHING in done.text else state
        if status:
            self.wrong.append(part.name)
        text = done.text.strip()
        self.lines += [f"## {part.title}: {state}, {seconds:.0f} s", "", "```", text, "```", ""]
        print(f"=== {part.name}: {state}, {seconds:.0f} s\n{text[-3500:]}", flush=True)
        self.write()

    def write(self) -> None:
        """Everything that is known, with the time that it took."""
        took = f"All of it took {self.seconds():.0f} s."
        (self.out / "gpu.md").write_text("\n".join([*self.lines, took]) + "\n")
        result = {"wrong": self.wrong, "states": self.states, "seconds": self.seconds()}
        (self.out / "gpu.json").write_text(json.dumps(result | self.versions, indent=1))

    def sum_up(self) -> None:
        """Every goal, behind all else."""
        self.write()
        lines = [goal.line for goal in goals(self.out)]
        self.lines += ["## Goals", "", *(f"- {line}" for line in lines), ""]
        print("=== goals", *lines, sep="\n", flush=True)
        self.write()

    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self.started


def run_stage(
    parts: Sequence[Part], page: Page, environment: dict[str, str], seconds: float
) -> None:
    """Run parts at once."""
    with ThreadPoolExecutor(len(parts)) as pool:
        started = [pool.submit(run, part, environment, seconds) for part in parts]
        for part, each in zip(parts, started, strict=True):
            page.add(part, each.result())


def main() -> int:
    """Run all parts and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float, default=560.0, help="for all of it")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = " ".join(["python", "tools/gpu/check.py", *sys.argv[1:]])
    known = versions()
    told = ", ".join(f"{k} {v}" for k, v in known.items())
    page = Page(given.out, [f"`{command}`", "", told, ""], known)
    for stage in stages(given.out):
        chosen = [part for part in stage if not given.parts or part.name in given.parts]
        if chosen:
            run_stage(chosen, page, environment, given.seconds - page.seconds())
    page.sum_up()
    return 1 if page.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
