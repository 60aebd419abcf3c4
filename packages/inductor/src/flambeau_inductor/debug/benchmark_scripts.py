"""Benchmark scripts of a program's C++ and Triton kernels.

In: the program, how its loops are launched, its kernels. Out: texts of scripts, and what each
kernel moves. Invariant: a script needs the debug folder and this package alone; index tensors are
zeros, which are in range of anything; a Triton script holds the kernel's whole source.

Benchmark of single kernels against the roofline. In: what a debug folder holds of a program's
kernels. Out: a line of text for each, those first that lose most to a copy, and their seconds in
the folder. Invariant: nothing of a user's is read or written: floats are drawn at random, integers
are zero (a position that is always there); on a GPU the device's own clock is read and its level 2
cache is overwritten before each run; on a CPU caches keep what they hold.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flambeau_inductor.autotune.benchmark import CpuClock, CudaClock
from flambeau_inductor.ir.loops import Point, Reduce
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import bytes_touched, storage_bytes
from flambeau_inductor.runtime.artifact import load_kernels
from flambeau_inductor.wrapper.source import LoopLaunch

if TYPE_CHECKING:
    from flambeau_inductor.codegen.triton.kernel import TritonKernel


DTYPES = {name: kind for name, kind in vars(torch).items() if isinstance(kind, torch.dtype)}
LIBRARY, LIBRARY_FACTS = "6_kernels.so", "6_kernels.json"
GPU_FACTS, GPU_SCRIPT = "6_gpu_kernels.json", "6_gpu_{name}.py"


@dataclass(frozen=True)
class Timed:
    """A kernel's fastest run. bytes: what it has to move. roof: bytes a second of a plain copy.
    times: how often the program runs it."""

    name: str
    seconds: float
    bytes: int
    roof: float
    origins: tuple[str, ...] = ()
    times: int = 1

    @property
    def lost(self) -> float:
        """Seconds of a run of the program that a copy of as many bytes would not have taken."""
        return self.times * max(0.0, self.seconds - self.bytes / self.roof)

    def __str__(self) -> str:
        rate = self.bytes / self.seconds
        often = f" x{self.times}" if self.times > 1 else ""
        return (
            f"{self.name + often:<16}{1e6 * self.seconds:10.1f} us{rate / 1e9:9.1f} GB/s"
            f"{100 * rate / self.roof:6.0f} % of a copy{1e6 * self.lost:10.1f} us lost  "
            + " ".join(self.origins)
        )


def table(rows: Sequence[Timed]) -> str:
    """A line for each, those first that lose most."""
    return "\n".join(map(str, sorted(rows, key=lambda row: row.lost, reverse=True)))


@dataclass(frozen=True)
class KernelBenchmark:
    """One Triton kernel: how it is launched, on what, and what it moves.

    programs: of its grid. constants, options: of Triton's compiler. buffers: elements and dtype of
    each. descriptors: the fields of each `Descriptor`. loops: those of the program that it runs.
    """

    programs: int
    constants: Mapping[str, int]
    options: Mapping[str, int | bool]
    buffers: tuple[tuple[int, str], ...]
    bytes: int
    loops: tuple[str, ...]
    origins: tuple[str, ...] = ()
    descriptors: tuple[Any, ...] = ()

    def timed(self, function: Any) -> Timed:
        """The kernel's time on the current GPU, or on the CPU where Triton interprets."""
        from flambeau_inductor.codegen.triton.build import interpreting  # not for C++ kernels

        gpu = not interpreting()
        device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        seconds = best_seconds(self.run(function, device), device)
        roof = copy_rate(device)
        return Timed(self.loops[0], seconds, self.bytes, roof, self.origins, len(self.loops))

    def run(self, function: Any, device: torch.device) -> Callable[[], object]:
        """A launch on tensors of its own."""
        from flambeau_inductor.codegen.triton.build import seen_by_triton  # as above
        from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor

        tensors = [_memory(elements, dtype, device) for elements, dtype in self.buffers]
        described = [seen_by_triton(tensors, Descriptor(*each)) for each in self.descriptors]
        given = (*tensors, *described)
        return partial(function[(self.programs,)], *given, **self.constants, **self.options)


def bench_library(folder: Path, count: int, names: Sequence[str]) -> None:
    """Print a table of the C++ kernels of a folder, of all or of those that are named."""
    facts = _facts(folder / LIBRARY_FACTS)
    functions = load_kernels(folder / LIBRARY, count)
    device = torch.device("cpu")
    rows = []
    for kernel in _wanted(facts, names):
        buffers = [_memory(elements, dtype, device) for elements, dtype, _ in kernel["buffers"]]
        places = (at for _, _, at in kernel["buffers"])
        addresses = [b.data_ptr() + at for b, at in zip(buffers, places, strict=True)]
        function = functions[int(kernel["function"].removeprefix("kernel"))]
        kernel["seconds"] = best_seconds(partial(function, *addresses), device, CPU_SECONDS)
        rows.append(_row(kernel, kernel["seconds"], copy_rate(device)))
    print(table(rows))
    (folder / LIBRARY_FACTS).write_text(json.dumps(facts, indent=1) + "\n")


def bench_scripts(folder: Path, names: Sequence[str]) -> None:
    """Print a table of the Triton kernels of a folder, of all or of those that are named, each as
    its script is now."""
    from flambeau_inductor.codegen.triton.build import import_kernels  # as above

    facts = _facts(folder / GPU_FACTS)
    rows = []
    for name in dict.fromkeys(kernel["function"] for kernel in _wanted(facts, names)):
        module = import_kernels(folder / GPU_SCRIPT.format(name=name))
        row = module.KERNEL.timed(getattr(module, name))
        rows.append(row)
        for kernel in facts:
            if kernel["function"] == name:
                kernel["seconds"] = row.seconds
    print(table(rows))
    (folder / GPU_FACTS).write_text(json.dumps(facts, indent=1) + "\n")


def _facts(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def _wanted(facts: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    known = [kernel["name"] for kernel in facts]
    if strange := [name for name in names if name not in known]:
        raise SystemExit(f"no kernel is called {strange[0]}; there are {', '.join(known)}")
    return [kernel for kernel in facts if not names or kernel["name"] in names]


def _row(kernel: Mapping[str, Any], seconds: float, roof: float) -> Timed:
    return Timed(kernel["name"], seconds, kernel["bytes"], roof, tuple(kernel["origins"]))


def _memory(elements: int, dtype: str, device: torch.device) -> torch.Tensor:
    kind = DTYPES[dtype]
    made = torch.zeros(elements, dtype=kind, device=device)
    return made.uniform_(-1, 1) if kind.is_floating_point and kind.itemsize > 1 else made


# --- roofline: a kernel's time against that of a plain copy ------------------------------------

RUNS = 5
CPU_SECONDS = 0.3
"""How long runs are repeated at most, beyond the first few."""
COPIED = {"cpu": 1 << 26, "cuda": 1 << 29}
"""Bytes of the copy that is timed, by kind of device: on a GPU far more than its cache holds."""


def best_seconds(run: Callable[[], object], device: torch.device, limit: float = 0.0) -> float:
    """The fastest of a few runs; of as many as fit into `limit` seconds, if those are more."""
    on_gpu = device.type == "cuda"
    clock = CudaClock(device.index or 0) if on_gpu else CpuClock(flush=0)
    run()
    best, done, ends = float("inf"), 0, time.perf_counter() + limit
    while done < RUNS or time.perf_counter() < ends:
        best = min(best, clock.sample(run))
        done += 1
    return best


def copy_rate(device: torch.device) -> float:
    """Bytes a second that a copy moves, read and written."""
    return _copy_rate(str(device), torch.get_num_threads())


@lru_cache(maxsize=8)
def _copy_rate(device: str, threads: int) -> float:
    """`threads`: of torch, as they are now; with other ones it is another figure."""
    source = torch.zeros(COPIED[torch.device(device).type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / best_seconds(lambda: target.copy_(source), source.device)


SCRIPT = '''"""Times the kernels of {name}: `python 6_bench.py [kernel ...]`."""

import sys
from pathlib import Path

from flambeau_inductor.debug.benchmark_scripts import bench_library

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

from flambeau_inductor.debug.benchmark_scripts import bench_scripts

bench_scripts(Path(__file__).parent, sys.argv[1:])
'''
ONE = '''"""{name} alone: `python {file}`. Change it, and see what it takes then."""

{imports}
from flambeau_inductor.debug.benchmark_scripts import KernelBenchmark

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
