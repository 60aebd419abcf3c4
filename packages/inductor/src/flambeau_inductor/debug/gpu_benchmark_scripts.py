"""Benchmark scripts of a program's Triton kernels.

In: the kernels of a program and what each moves. Out: the scripts' texts by file name. Invariant: a
script holds the kernel's whole source, so that it can be changed and timed again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau_inductor.codegen.triton.build import options_of
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import imports
from flambeau_inductor.debug.kernel_benchmark import GPU_FACTS, GPU_SCRIPT

ALL = '''"""Times the kernels of {name}: `python 6_gpu_bench.py [kernel ...]`."""

import sys
from pathlib import Path

from flambeau_inductor.debug.kernel_benchmark import bench_scripts

bench_scripts(Path(__file__).parent, sys.argv[1:])
'''
ONE = '''"""{name} alone: `python {file}`. Change it, and see what it takes then."""

{imports}
from flambeau_inductor.debug.kernel_benchmark import Alone

{source}

KERNEL = Alone(
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
    fields = {
        "programs": kernel.programs,
        "constants": dict(kernel.constants),
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
