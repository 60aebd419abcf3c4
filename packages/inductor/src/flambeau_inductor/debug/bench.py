"""A script that runs a program's C++ kernels alone and says how fast each is.

In: the program, and how its loops are launched. Out: the script's text, and what each kernel moves.
Invariant: the script needs the debug folder and the runtime alone; index tensors are zeros, which
are inside of anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau_inductor.ir.loops import Point, Reduce
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import storage_bytes, touched
from flambeau_inductor.wrapper.source import Launch

SCRIPT = '''"""Times the kernels of {name}: `python 6_bench.py [kernel ...]`."""

import json
import sys
import time
from pathlib import Path

import torch

from flambeau_inductor.runtime.library import load_kernels

HERE = Path(__file__).parent
KERNELS = json.loads((HERE / "6_kernels.json").read_text())
FUNCTIONS = load_kernels(HERE / "6_kernels.so", {count})


def memory(elements, dtype):
    kind = getattr(torch, dtype)
    made = torch.zeros(elements, dtype=kind)
    return made.uniform_(-1, 1) if kind.is_floating_point else made


def seconds(function, addresses):
    function(*addresses)
    best = float("inf")
    ends = time.perf_counter() + 0.3
    while time.perf_counter() < ends:
        started = time.perf_counter()
        function(*addresses)
        best = min(best, time.perf_counter() - started)
    return best


for kernel in KERNELS:
    if sys.argv[1:] and kernel["name"] not in sys.argv[1:]:
        continue
    buffers = [memory(elements, dtype) for elements, dtype, _ in kernel["buffers"]]
    addresses = [b.data_ptr() + at for b, (_, _, at) in zip(buffers, kernel["buffers"])]
    taken = seconds(FUNCTIONS[kernel["function"]], addresses)
    kernel["seconds"] = taken
    rate = kernel["bytes"] / taken / 1e9
    print(f"{{kernel['name']:<12}}{{taken * 1e6:10.1f}} us{{rate:8.1f}} GB/s  "
          + " ".join(kernel["origins"]))
(HERE / "6_kernels.json").write_text(json.dumps(KERNELS, indent=1))
'''


def bench_script(name: str, count: int) -> str:
    """The script's text, for `count` kernels."""
    return SCRIPT.format(name=name, count=count)


def kernel_facts(program: Program, launches: Mapping[str, Launch]) -> list[dict[str, Any]]:
    """Of each loop that addresses alone launch: what it moves, computes and is given."""
    layouts = {b.name: b.layout for b in program.buffers}
    found: list[dict[str, Any]] = []
    for step in program.steps:
        if not isinstance(step, RunLoop):
            continue
        launch = launches[step.loop.name]
        sizes = {
            n: size for n in launch.buffers if isinstance(size := storage_bytes(layouts[n]), int)
        }
        points = 1
        for axis in (*step.loop.x, *step.loop.r):
            points *= axis.size if isinstance(axis.size, int) else 0
        fixed = len(sizes) == len(set(launch.buffers)) and points > 0
        if not fixed or not launch.by_address or launch.queued or launch.sizes:
            continue  # a script cannot make up sizes that are left open, nor a stream
        reads, writes = touched(step)
        moved = sum(sizes[n] for n in (*reads, *writes))
        work = sum(isinstance(i, Point | Reduce) for i in step.loop.body)
        found.append(
            {
                "name": step.loop.name,
                "function": int(launch.kernel.removeprefix("kernel")),
                "bytes": moved,
                "flops": points * work,
                "seconds": None,
                "origins": list(step.loop.origins),
                "buffers": [
                    (
                        sizes[n] // layouts[n].dtype.itemsize,
                        str(layouts[n].dtype).removeprefix("torch."),
                        offset,
                    )
                    for n, offset in zip(launch.buffers, launch.offsets, strict=True)
                ],
            }
        )
    return found
