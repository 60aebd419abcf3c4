"""Launch data of Triton kernels, and the native part of launching.

In: the Triton part of an artifact; options and a store. Out: its kernels; the library that launches
them. Invariant: where no C++ compiler builds the library, a warning says so and kernels are
launched through Triton.
"""

from __future__ import annotations

from pathlib import Path

from flambeau_inductor.cache import CacheEntry, CacheStore, key, versions
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.errors import CompilerFailed, CompilerNotFound, warn
from flambeau_inductor.options import Options
from flambeau_inductor.runtime.gpu.cuda_graphs import tuples_of
from flambeau_inductor.runtime.gpu.launch import Library, load_library
from flambeau_inductor.runtime.kernel_part import KernelPart

LAUNCH = '#include "flambeau/launch.h"\n'
LAUNCH_FILE = "launch.so"


def kernels_of(part: KernelPart) -> list[TritonKernel]:
    """The kernels of an artifact's Triton part."""
    described = part.data["kernels"]
    return [TritonKernel(**{n: tuples_of(v) for n, v in each.items()}) for each in described]


def launch_library(options: Options, store: CacheStore) -> Library | None:
    """The native part of launching; None, with a warning, where no C++ compiler builds it."""
    entry = launch_entry(options, store)
    return None if entry is None else load_library(entry.folder / LAUNCH_FILE)


def launch_entry(options: Options, store: CacheStore) -> CacheEntry | None:
    """The entry that holds the library of `launch_library`."""
    try:
        toolchain = find_toolchain(options.compiler)
        wanted = key(
            "kernels",
            language="launch",
            headers=toolchain.headers,
            toolchain=toolchain.identity,
            versions=versions(),
        )

        def make(folder: Path) -> None:
            toolchain.build(LAUNCH, folder).rename(folder / LAUNCH_FILE)

        return store.entry(wanted, make)
    except (CompilerNotFound, CompilerFailed) as error:
        warn(f"kernels are launched through Triton, which takes longer: {error}")
        return None
