"""Kernel generation: the code generator of each loop, and launch data.

In: a scheduled compilation. Out: `KernelText`s. Invariant: all the buffers of a loop are on one
device; a loop that its generator cannot express fails the compile with the reason.

Builds of units that find the header of all units precompiled: half of a small one's time. In: a
unit's text, the store of kernels. Out: its library. Invariant: the library is the same with and
without. GCC reads the precompiled header of a folder that comes before that of the header in its
search only where its version, flags and macros are those that it was made with; where it is missing
or does not fit, the header itself is read. It is made once for a store, a toolchain and a number of
lanes, while the program goes on after the first build that lacked it. A store that ends with its
process has none.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from flambeau_inductor.cache import CacheStore, key, open_store, processor, versions
from flambeau_inductor.codegen.cpp import unit
from flambeau_inductor.codegen.cpp.toolchain import Toolchain, find_toolchain
from flambeau_inductor.codegen.triton.instructions import INT32_LIMIT
from flambeau_inductor.codegen.triton.module import generate_module
from flambeau_inductor.compile_state import Built, Compilation, KernelText
from flambeau_inductor.errors import (
    CompilerFailed,
    CppUnsupported,
    InductorError,
    TritonUnsupported,
)
from flambeau_inductor.indexing import depends_on_data, hint, surely_less
from flambeau_inductor.ir.evaluate import flat, run_loop
from flambeau_inductor.ir.loops import Loop, buffers_of
from flambeau_inductor.ir.program import Extern, Layout
from flambeau_inductor.ir.show import show_loop
from flambeau_inductor.ir.steps import draws_fused_with_loops, storage_bytes
from flambeau_inductor.kernels.loaders import loaders
from flambeau_inductor.runtime.artifact import load_kernels
from flambeau_inductor.runtime.cpu.random import BERNOULLI
from flambeau_inductor.runtime.kernel_part import KernelPart
from flambeau_inductor.tuning import tuning_of
from flambeau_inductor.wrapper.source import LaunchAfterDraws, LoopLaunch

LANES = re.compile(r'#define FL_W (\d+)\n#include "flambeau.h"\n')
"""How a text begins that is built sooner."""
THREAD = "flambeau-precompiled-header"


def build_library(toolchain: Toolchain, text: str, folder: Path, store: CacheStore) -> Path:
    """`toolchain.build`, with what is precompiled; what is not is made for the next."""
    begin = LANES.match(text)
    if begin is None or store.lease is not None or not toolchain.precompiles:
        return toolchain.build(text, folder)
    header = _header(toolchain, int(begin[1]), store)
    if header.folder is not None:
        # it fails where memory is taken that GCC maps it to
        with suppress(CompilerFailed):
            return toolchain.build(text, folder, header.folder)
    library = toolchain.build(text, folder)
    header.make()
    return library


class _PrecompiledHeader:
    """`folder` is where it is, once it is."""

    def __init__(self, toolchain: Toolchain, lanes: int, store: CacheStore) -> None:
        self.toolchain, self.lanes, self.store = toolchain, lanes, store
        self.key = key("headers", toolchain=toolchain.identity, lanes=str(lanes))
        self.folder = store.find(self.key)
        self.begun = self.folder is not None

    def make(self) -> None:
        """Begin to make it, if nobody did."""
        if not self.begun:
            self.begun = True
            with suppress(RuntimeError):  # there are no new threads while Python ends
                Thread(target=self._make, name=THREAD).start()

    def _make(self) -> None:
        # no fault of the program: the next build reads the header itself
        with suppress(CompilerFailed, OSError):
            entry = self.store.entry(
                self.key, lambda folder: self.toolchain.precompile(self.lanes, folder)
            )
            self.folder = None if entry.lease else entry.folder


@lru_cache(maxsize=16)
def _header(toolchain: Toolchain, lanes: int, store: CacheStore) -> _PrecompiledHeader:
    return _PrecompiledHeader(toolchain, lanes, store)


LANGUAGE = {"cpu": "cpp", "cuda": "triton"}
"""Code generator by device type."""


def generate(work: Compilation) -> tuple[KernelText, ...]:
    """The kernels of all loops, by language."""
    layouts = {b.name: b.layout for b in work.scheduled().buffers}
    by_language: dict[str, list[Loop]] = {}
    loops = work.loops()
    fuel = work.options.fuel.kernels
    fueled = len(loops) if fuel is None else fuel
    for loop in loops[:fueled]:
        by_language.setdefault(_language(work, loop, layouts), []).append(loop)
    texts = [GENERATORS[name](work, some) for name, some in sorted(by_language.items())]
    return (*texts, evaluated(loops[fueled:])) if loops[fueled:] else tuple(texts)


def evaluated(loops: Sequence[Loop]) -> KernelText:
    """The loops as Python functions on the tensors of their buffers, by the loop IR's meaning:
    nothing is shared with code generation, so that a wrong kernel shows as a difference."""
    functions: dict[str, Any] = {}
    launches: dict[str, LoopLaunch] = {}
    for number, loop in enumerate(loops):
        names = tuple(sorted(buffers_of(loop)))

        def run(*tensors: torch.Tensor, loop: Loop = loop, names: Sequence[str] = names) -> None:
            places = zip(names, tensors, strict=True)
            run_loop(loop, {name: flat(tensor) for name, tensor in places})

        functions[f"evaluated{number}"] = run
        launches[loop.name] = LoopLaunch(f"evaluated{number}", names, by_address=False)
    text = "\n\n".join(show_loop(loop) for loop in loops) + "\n"
    return KernelText("evaluated.txt", text, len(loops), launches, lambda: Built(functions))


def _language(work: Compilation, loop: Loop, layouts: Mapping[str, Layout]) -> str:
    devices = {layouts[b].device for b in buffers_of(loop)}
    nodes = ", ".join(loop.origins)
    if not devices:
        raise InductorError(f"{nodes}: a kernel that neither reads nor writes")
    if len(devices) != 1:
        places = ", ".join(sorted(map(str, devices)))
        raise InductorError(f"{nodes}: one kernel would touch tensors on {places}")
    kind = devices.pop().type
    if work.options.kernels != "auto":
        return work.options.kernels
    if kind not in LANGUAGE:
        raise InductorError(f"{nodes}: no kernels are generated for {kind} tensors")
    return LANGUAGE[kind]


def _cpp(work: Compilation, loops: Sequence[Loop]) -> KernelText:
    toolchain = find_toolchain(work.options.compiler, work.options.processor)
    steps = work.scheduled().steps
    draws = any(isinstance(step, Extern) and step.target == BERNOULLI for step in steps)
    deferred = draws_fused_with_loops(work.scheduled()) if draws else {}
    try:
        source = unit.generate(
            loops,
            work.dtypes().__getitem__,
            toolchain.vector_bytes,
            work.options.threads,
            draws=draws,
            forms=work.forms,
            drawn={name: each.mask for name, each in deferred.items()},
        )
    except CppUnsupported as error:
        raise InductorError(f"C++ kernels: {error}") from error

    def build() -> Built:
        store = open_store(work.options.cache_dir)
        wanted = key(
            "kernels",
            language="cpp",
            text=source.text,
            toolchain=toolchain.identity,
            processor=processor(),
            versions=versions(),
        )

        def make(folder: Path) -> None:
            (folder / "kernels.cpp").write_text(source.text)
            try:
                library = build_library(toolchain, source.text, folder, store)
                library.rename(folder / "kernels.so")
            except CompilerFailed as error:
                full = [os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)]
                if any(reason in str(error) for reason in full):  # it is the disk that it fails for
                    raise OSError(errno.ENOSPC, full[0]) from error
                raise

        entry = store.entry(wanted, make)
        library = entry.folder / "kernels.so"
        functions = load_kernels(library, source.functions)
        named = {f"kernel{k}": f for k, f in enumerate(functions)}
        part = KernelPart("cpp", {"kernels.so": library}, {"count": source.functions})
        return Built(named, entry.hit, (store, entry.lease), part, entry.fault)

    launches = {
        name: LoopLaunch(
            f"kernel{entry.number}",
            entry.buffers,
            by_address=True,
            offsets=entry.offsets,
            sizes=entry.sizes,
            drawn=None
            if entry.after_draws is None
            else LaunchAfterDraws(f"kernel{entry.after_draws}", deferred[name]),
        )
        for name, entry in source.entries.items()
    }
    if draws:
        launches[BERNOULLI] = LoopLaunch(f"kernel{source.kernels}", (), by_address=True)
    return KernelText("kernels.cpp", source.text, source.kernels, launches, build)


def _triton(work: Compilation, loops: Sequence[Loop]) -> KernelText:
    from flambeau_inductor.codegen.triton import build as builder  # most programs never need it

    try:
        builder.require_triton()
    except builder.TritonMissing as error:
        raise InductorError(str(error)) from error
    devices = [d for b in work.scheduled().buffers if (d := b.layout.device).type == "cuda"]
    if not devices and not builder.interpreting():
        raise InductorError(
            "kernels='triton' of CPU tensors: set TRITON_INTERPRET=1 before triton is imported"
        )
    touched = set[str]().union(*map(buffers_of, loops))
    sizes = {b.name: _span(b.layout) for b in work.scheduled().buffers if b.name in touched}
    tuning = tuning_of(b.layout.device for b in work.scheduled().buffers)
    try:
        source = generate_module(loops, work.dtypes(), sizes, work.chosen_kernels, tuning)
    except TritonUnsupported as error:
        raise InductorError(f"Triton kernels: {error}") from error

    def build() -> Built:
        store = open_store(work.options.cache_dir)

        def make(folder: Path) -> None:
            (folder / "kernels.py").write_text(source.text)

        wanted = key("kernels", language="triton", text=source.text, versions=versions())
        entry = store.entry(wanted, make)
        path = entry.folder / "kernels.py"
        index = None if builder.interpreting() else devices[0].index or 0
        described = [asdict(kernel) for kernel in source.kernels]
        part = KernelPart("triton", {"kernels.py": path}, {"kernels": described})
        functions, kept = loaders(work.options)["triton"](part, index)
        return Built(functions, entry.hit, (store, entry.lease, *kept), part, entry.fault)

    launches = {
        name: LoopLaunch(
            launch.kernel.name,
            launch.buffers,
            by_address=not builder.interpreting(),
            queued=not builder.interpreting(),
            sizes=launch.given,
        )
        for name, launch in source.launches.items()
    }
    return KernelText("kernels.py", source.text, len(source.kernels), launches, build)


def _span(layout: Layout) -> int:
    """Elements that a buffer's indices may span; open ones stay on their side of 32 bits."""
    span = storage_bytes(layout) // layout.dtype.itemsize
    if not surely_less(span, INT32_LIMIT + 1) and depends_on_data((span,)):
        return INT32_LIMIT + 1
    return hint(span)


GENERATORS: Mapping[str, Callable[[Compilation, Sequence[Loop]], KernelText]] = {
    "cpp": _cpp,
    "triton": _triton,
}
