"""Which code generator each loop goes to, and what its output needs to be launched.

In: a scheduled compilation. Out: `KernelText`s. Invariant: all the buffers of a loop are on one
device; a loop that its generator cannot express fails the compile with the reason.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flambeau_prims import DIALECT

from flambeau_inductor.__about__ import __version__
from flambeau_inductor.cache import Store as CacheStore
from flambeau_inductor.cache import key_of, open_store
from flambeau_inductor.codegen import cpp, triton
from flambeau_inductor.compilation import Compilation, KernelText
from flambeau_inductor.errors import InductorError
from flambeau_inductor.evaluated import evaluated
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.runtime.gpu_launch import Library, load_library
from flambeau_inductor.runtime.library import load_kernels
from flambeau_inductor.schedule.memory import storage_bytes
from flambeau_inductor.wrapper.source import Launch

Built = tuple[Mapping[str, Any], bool, tuple[object, ...]]

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


def buffers_of(loop: Loop) -> set[str]:
    """Names of the buffers that a loop touches."""
    return {i.buffer for i in loop.body if isinstance(i, Load | Store)}


def _language(work: Compilation, loop: Loop, layouts: Mapping[str, Layout]) -> str:
    devices = {layouts[b].device for b in buffers_of(loop)}
    nodes = ", ".join(loop.origins)
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
    toolchain = cpp.find_toolchain(work.options.compiler)
    try:
        source = cpp.generate(
            loops, work.dtypes().__getitem__, toolchain.vector_bytes, work.options.threads
        )
    except cpp.CppUnsupported as error:
        raise InductorError(f"C++ kernels: {error}") from error

    def build() -> Built:
        key = key_of("cpp", source.text, toolchain.identity, processor(), *versions())
        store = open_store(work.options.cache_dir)

        def make(folder: Path) -> None:
            (folder / "kernels.cpp").write_text(source.text)
            cpp.build(toolchain, source.text, folder).rename(folder / "kernels.so")

        entry = store.entry(key, make)
        functions = load_kernels(entry.folder / "kernels.so", source.kernels)
        return {f"kernel{k}": f for k, f in enumerate(functions)}, entry.hit, (store,)

    launches = {
        name: Launch(f"kernel{entry.number}", entry.buffers, by_address=True)
        for name, entry in source.entries.items()
    }
    return KernelText("kernels.cpp", source.text, source.kernels, launches, build)


def _triton(work: Compilation, loops: Sequence[Loop]) -> KernelText:
    from flambeau_inductor.codegen.triton import build as builder  # most programs never need it

    try:
        builder.require_triton()
    except builder.TritonMissing as error:
        raise InductorError(str(error)) from error
    sizes = {
        b.name: storage_bytes(b.layout) // b.layout.dtype.itemsize for b in work.scheduled().buffers
    }
    try:
        source = triton.generate_module(loops, work.dtypes(), sizes)
    except triton.TritonUnsupported as error:
        raise InductorError(f"Triton kernels: {error}") from error

    def build() -> Built:
        store = open_store(work.options.cache_dir)

        def make(folder: Path) -> None:
            (folder / "kernels.py").write_text(source.text)

        entry = store.entry(key_of("triton", source.text, *versions()), make)
        path = entry.folder / "kernels.py"
        if builder.interpreting():
            made = builder.build(path, source.kernels)
            return dict(made), entry.hit, (store,)
        with torch.cuda.device(devices[0]):
            made = builder.build(path, source.kernels, _launch_library(work, store))
            queues = {name: launcher.queue for name, launcher in made.items()}
        return queues, entry.hit, (store, made)

    devices = [d for b in work.scheduled().buffers if (d := b.layout.device).type == "cuda"]
    launches = {
        name: Launch(
            launch.kernel.name,
            launch.buffers,
            by_address=not builder.interpreting(),
            queued=not builder.interpreting(),
        )
        for name, launch in source.launches.items()
    }
    return KernelText("kernels.py", source.text, len(source.kernels), launches, build)


def _launch_library(work: Compilation, store: CacheStore) -> Library | None:
    """The native part of launching; None, with a warning, where no C++ compiler builds it."""
    try:
        toolchain = cpp.find_toolchain(work.options.compiler)
        key = key_of("launch", toolchain.identity, *versions())

        def make(folder: Path) -> None:
            cpp.build(toolchain, LAUNCH, folder).rename(folder / "launch.so")

        return load_library(store.entry(key, make).folder / "launch.so")
    except (cpp.CompilerNotFound, cpp.CompilerFailed) as error:
        warnings.warn(
            f"kernels are launched through Triton, which takes longer: {error}", stacklevel=2
        )
        return None


LAUNCH = '#include "flambeau/launch.h"\n'

GENERATORS: Mapping[str, Callable[[Compilation, Sequence[Loop]], KernelText]] = {
    "cpp": _cpp,
    "triton": _triton,
}


def versions() -> tuple[str, ...]:
    """What a built kernel depends on besides its text and its compiler."""
    return __version__, str(DIALECT), torch.__version__


@lru_cache(maxsize=1)
def processor() -> str:
    """The processor's features: `-march=native` means something else on another one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    found: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in facts:
            found.setdefault(key.strip(), value.strip())
    return platform.machine() + repr(sorted(found.items()))
