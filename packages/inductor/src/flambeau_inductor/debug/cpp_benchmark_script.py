"""Benchmark script of a program's C++ kernels.

In: the program, and how its loops are launched. Out: the script's text, and what each kernel moves.
Invariant: the script needs the debug folder and this package alone; index tensors are zeros, which
are inside of anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau_inductor.ir.loops import Point, Reduce
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import bytes_touched, storage_bytes
from flambeau_inductor.wrapper.source import LoopLaunch

SCRIPT = '''"""Times the kernels of {name}: `python 6_bench.py [kernel ...]`."""

import sys
from pathlib import Path

from flambeau_inductor.debug.kernel_benchmark import bench_library

bench_library(Path(__file__).parent, {count}, sys.argv[1:])
'''


def bench_script(name: str, count: int) -> str:
    """The script's text, for `count` kernels."""
    return SCRIPT.format(name=name, count=count)


def kernel_facts(program: Program, launches: Mapping[str, LoopLaunch]) -> list[dict[str, Any]]:
    """Of each of the loops that are launched: what it moves, computes and is given."""
    layouts = {b.name: b.layout for b in program.buffers}
    found: list[dict[str, Any]] = []
    for step in program.steps:
        if not isinstance(step, RunLoop) or step.loop.name not in launches:
            continue
        launch = launches[step.loop.name]
        sizes = {
            n: size for n in launch.buffers if isinstance(size := storage_bytes(layouts[n]), int)
        }
        items = {n: layouts[n].dtype.itemsize for n in launch.buffers}
        points = 1
        for axis in (*step.loop.x, *step.loop.r):
            points *= axis.size if isinstance(axis.size, int) else 0
        fixed = len(sizes) == len(set(launch.buffers)) and points > 0
        if not fixed or launch.sizes:
            continue  # a script cannot make up sizes that are left open
        work = sum(isinstance(i, Point | Reduce) for i in step.loop.body)
        found.append(
            {
                "name": step.loop.name,
                "function": launch.kernel,
                "bytes": bytes_touched(step, sizes, items),
                "flops": points * work,
                "seconds": None,
                "origins": list(step.loop.origins),
                "buffers": [
                    (
                        sizes[n] // layouts[n].dtype.itemsize,
                        str(layouts[n].dtype).removeprefix("torch."),
                        offset,
                    )
                    for n, offset in zip(
                        launch.buffers, launch.offsets or (0,) * len(launch.buffers), strict=True
                    )
                ],
            }
        )
    return found
