"""Benchmark scripts of a program's C++ and Triton kernels.

In: the program, how its loops are launched, its kernels. Out: texts of scripts, and what each
kernel moves. Invariant: a script needs the debug folder and this package alone; index tensors are
zeros, which are in range of anything; a Triton script holds the kernel's whole source.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from flambeau_inductor.debug.kernel_benchmark import GPU_FACTS, GPU_SCRIPT
from flambeau_inductor.ir.loops import Point, Reduce
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import bytes_touched, storage_bytes
from flambeau_inductor.wrapper.source import LoopLaunch

if TYPE_CHECKING:
    from flambeau_inductor.codegen.triton.kernel import TritonKernel

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
        used = {n: layouts[n] for n in launch.buffers}
        sizes = {n: size for n, of in used.items() if isinstance(size := storage_bytes(of), int)}
        items = {n: of.dtype.itemsize for n, of in used.items()}
        axes = (*step.loop.x, *step.loop.r)
        points = prod(axis.size if isinstance(axis.size, int) else 0 for axis in axes)
        offsets = launch.offsets or (0,) * len(launch.buffers)
        fixed = len(sizes) == len(used) and points > 0
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
                    (sizes[n] // items[n], str(used[n].dtype).removeprefix("torch."), offset)
                    for n, offset in zip(launch.buffers, offsets, strict=True)
                ],
            }
        )
    return found


ALL = '''"""Times the kernels of {name}: `python 6_gpu_bench.py [kernel ...]`."""

import sys
from pathlib import Path

from flambeau_inductor.debug.kernel_benchmark import bench_scripts

bench_scripts(Path(__file__).parent, sys.argv[1:])
'''
ONE = '''"""{name} alone: `python {file}`. Change it, and see what it takes then."""

{imports}
from flambeau_inductor.debug.kernel_benchmark import KernelBenchmark

{source}

KERNEL = KernelBenchmark(
{fields}
)

if __name__ == "__main__":
    print(KERNEL.timed({name}))
'''


def gpu_scripts(
    name: str, kernels: Sequence[TritonKernel], facts: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Files of the kernels of a program, of those that constant sizes are known of."""
    by_kernel: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in facts:
        by_kernel[each["function"]].append(each)
    files = {
        GPU_SCRIPT.format(name=kernel.name): _script(kernel, by_kernel[kernel.name])
        for kernel in kernels
        if by_kernel[kernel.name]
    }
    return {
        GPU_FACTS: json.dumps(facts, indent=1) + "\n",
        "6_gpu_bench.py": ALL.format(name=name),
        **files,
    }


def _script(kernel: TritonKernel, facts: Sequence[Mapping[str, Any]]) -> str:
    from flambeau_inductor.codegen.triton.build import options_of  # most programs never need it
    from flambeau_inductor.codegen.triton.kernel import DEPENDENT
    from flambeau_inductor.codegen.triton.module import imports

    fields = {
        "programs": kernel.programs,
        "constants": dict(kernel.constants) | {DEPENDENT: 0},  # each launch is for itself
        "options": options_of(kernel),
        "buffers": tuple((elements, dtype) for elements, dtype, _ in facts[0]["buffers"]),
        "bytes": facts[0]["bytes"],
        "loops": tuple(each["name"] for each in facts),
        "origins": tuple(facts[0]["origins"]),
        "descriptors": tuple(tuple(each) for each in kernel.descriptors),
    }
    return ONE.format(
        name=kernel.name,
        file=GPU_SCRIPT.format(name=kernel.name),
        imports=imports(kernel.source),
        source=kernel.source.strip(),
        fields="\n".join(f"    {field}={value!r}," for field, value in fields.items()),
    )
