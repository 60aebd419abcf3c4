"""Running hand-made loops as compiled C++, several in one unit."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from flambeau_inductor.cache import open_store
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.kernels.generate import build_library

Buffers = dict[str, torch.Tensor]
# narrower than the machine's vectors: the tests then cover the other widths too
WIDTH = int(os.environ.get("FLAMBEAU_TEST_VECTOR_BYTES", "0"))


def vector_bytes() -> int:
    """Bytes of the vectors that the tests are generated for."""
    return WIDTH or find_toolchain().vector_bytes


def built(text: str, folder: Path) -> ctypes.PyDLL:
    """The library of a unit, whose `flambeau_kernel` gives functions by their numbers."""
    path = build_library(find_toolchain(), text, folder, open_store())
    library = ctypes.PyDLL(str(path))
    library.flambeau_kernel.restype = ctypes.py_object
    return library


def compile_loop(
    loop: Loop, dtypes: dict[str, torch.dtype], folder: Path, width: int | None = None
) -> Callable[[Buffers], None]:
    """Build `loop`; the result runs it on buffers given by name."""
    source = generate([loop], dtypes.__getitem__, width or vector_bytes())
    library = built(source.text, folder)
    entry = source.entries[loop.name]
    kernel = library.flambeau_kernel(entry.number)

    def run(buffers: Buffers) -> None:
        assert library is not None
        kernel(*(buffers[n].data_ptr() + o for n, o in zip(entry.buffers, entry.offsets)))

    return run


def run_loops(loops: Sequence[Loop], buffers: Buffers, folder: Path) -> None:
    """Generate `loops`, which have different names, in one unit; call them in order."""
    source = generate(loops, lambda name: buffers[name].dtype, vector_bytes())
    library = built(source.text, folder)
    for loop in loops:
        entry = source.entries[loop.name]
        kernel = library.flambeau_kernel(entry.number)
        kernel(*(buffers[n].data_ptr() + o for n, o in zip(entry.buffers, entry.offsets)))


def run_loop(loop: Loop, buffers: Buffers, folder: Path, width: int | None = None) -> None:
    """Generate, compile and call `loop` on `buffers`, in place."""
    dtypes = {name: tensor.dtype for name, tensor in buffers.items()}
    compile_loop(loop, dtypes, folder, width)(buffers)
