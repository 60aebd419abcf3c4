"""Time of capturing: Flambeau and the incumbent, each with a backend that does nothing.

In: GPT-2 (12 layers), ResNet-50 and ViT-B from their configurations, small inputs. Out: seconds of
the first call less those of the next, medians of interleaved repeats, and their ratio. Invariant:
both systems capture the same module in the same process; imports are made before the clock starts.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from benchmarks.zoo.torchvision_cpu import torchvision

Subject = tuple[torch.nn.Module, torch.Tensor]


def gpt2(training: bool) -> Subject:
    torchvision()
    import transformers  # slow to import, and only this case needs it

    config = transformers.GPT2Config(n_layer=12, n_embd=64, n_head=4, vocab_size=500)
    return transformers.GPT2Model(config).train(training), torch.randint(0, 500, (1, 8))


def resnet50(training: bool) -> Subject:
    return torchvision().models.resnet50().train(training), torch.randn(2, 3, 32, 32)


def vit_b(training: bool) -> Subject:
    model = torchvision().models.vit_b_16(image_size=32)
    return model.train(training), torch.randn(1, 3, 32, 32)


SUBJECTS: dict[str, Callable[[bool], Subject]] = {
    "gpt2_12": gpt2,
    "resnet50": resnet50,
    "vit_b": vit_b,
}


def _flambeau(module: torch.nn.Module) -> Callable[..., Any]:
    import flambeau_capture  # its import is timed on its own

    compiled: Callable[..., Any] = flambeau_capture.compile(module, backend="eager")
    return compiled


def _incumbent(module: torch.nn.Module) -> Callable[..., Any]:
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(module, backend="eager")
    return compiled


SYSTEMS = {"flambeau": _flambeau, "incumbent": _incumbent}


def seconds(compiled: Callable[..., Any], given: torch.Tensor) -> float:
    """The first call less the second."""
    started = time.perf_counter()
    compiled(given)
    between = time.perf_counter()
    compiled(given)
    return (between - started) - (time.perf_counter() - between)


def measure(name: str, training: bool, repeats: int) -> dict[str, Any]:
    """Both systems, interleaved."""
    module, given = SUBJECTS[name](training)
    small = torch.nn.Linear(2, 2)
    for system in SYSTEMS.values():
        system(small)(torch.ones(2, 2))  # imports, and caches that live as long as the process
    times: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for _ in range(repeats):
        for system, wrap in SYSTEMS.items():
            times[system].append(seconds(wrap(module), given))
    medians = {system: statistics.median(found) for system, found in times.items()}
    return {"name": name, "training": training, **medians,
            "ratio": medians["flambeau"] / medians["incumbent"]}  # fmt: skip


def profile(name: str, training: bool, top: int) -> None:
    """Where the time of one capture goes, by function. CPython's frame hook is off under a
    profiler, so that it is the conversion that is profiled, from its inside."""
    from flambeau_capture.frame.compiler import (
        FrameCompiler,  # the package is loaded when it is measured
    )

    module, given = SUBJECTS[name](training)
    _flambeau(torch.nn.Linear(2, 2))(torch.ones(2, 2))
    found = cProfile.Profile()
    convert = FrameCompiler._convert

    def profiled(*arguments: Any) -> Any:
        return found.runcall(convert, *arguments)

    with mock.patch.object(FrameCompiler, "_convert", profiled):
        _flambeau(module)(given)
    stats = pstats.Stats(found)
    stats.sort_stats("tottime").print_stats(top)
    stats.sort_stats("cumtime").print_stats(top)


def import_seconds(repeats: int) -> dict[str, float]:
    """Seconds of `import torch`, and of `import flambeau_capture` after it."""
    program = (
        "import time; a = time.perf_counter(); import torch; b = time.perf_counter();"
        "import flambeau_capture; c = time.perf_counter(); flambeau_capture.compile;"
        "print(b - a, c - b, time.perf_counter() - c)"
    )
    rows = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        rows.append([float(text) for text in done.stdout.split()])
    names = ("torch", "flambeau_capture", "first use")
    return {name: min(row[place] for row in rows) for place, name in enumerate(names)}


def main() -> int:
    """Measure, or profile one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(SUBJECTS), choices=list(SUBJECTS))
    parser.add_argument("--modes", nargs="*", default=["inference", "training"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", type=int, metavar="N", help="show the N dearest functions")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    cases = [(name, mode == "training") for name in arguments.models for mode in arguments.modes]
    if arguments.profile:
        for name, training in cases:
            profile(name, training, arguments.profile)
        return 0
    rows = [measure(*case, arguments.repeats) for case in cases]
    imports = import_seconds(3)
    lines = [
        f"`{' '.join(['python benchmarks/stages/capture_speed.py', *sys.argv[1:]])}`, torch "
        f"{torch.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores",
        "",
        "| model | mode | flambeau, s | incumbent, s | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        mode = "training" if row["training"] else "inference"
        lines.append(f"| {row['name']} | {mode} | {row['flambeau']:.3f} | {row['incumbent']:.3f} "
                     f"| {row['ratio']:.2f} |")  # fmt: skip
    lines += ["", *(f"import {name}: {found:.3f} s" for name, found in imports.items())]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows, "imports": imports}, indent=1))
    if arguments.markdown:
        arguments.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
