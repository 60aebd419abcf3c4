"""Triton binaries, for processes without a compiler and for the next process.

In: a part of an artifact that Triton's compiler loads, and a compute capability, or launchers.
Out: the same part for `runtime.gpu.binaries`; an entry of a store, for `kernels.kept_binaries`.
Invariant: a part has every kernel for aligned and for any buffers, and needs no GPU to be made; an
entry has what was built for aligned ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from flambeau_inductor.cache import CacheStore, open_store
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.errors import InductorError
from flambeau_inductor.kernels.kept_binaries import KERNELS, key_of
from flambeau_inductor.kernels.launching import LAUNCH_FILE, kernels_of, launch_entry
from flambeau_inductor.options import Options
from flambeau_inductor.runtime.gpu.binaries import LIBRARY, dotted
from flambeau_inductor.runtime.gpu.launch import Launcher, entry_of, parameters_of, waits
from flambeau_inductor.runtime.kernel_part import KernelPart
from flambeau_inductor.tuning.machine import describes, shared_bytes_of

LOADER = "cubin"
VARIANTS: Mapping[str, bool] = {"aligned": True, "any": False}
"""Whether the buffers are known to be aligned."""


def as_binaries(
    part: KernelPart, capability: tuple[int, int], folder: Path, options: Options, parallel: int = 8
) -> KernelPart:
    """The part with its kernels compiled for `capability`, the files in `folder`.

    Raises InductorError for a kernel that only Triton can launch, and for one that such GPUs cannot
    run.
    """
    kernels = kernels_of(part)
    wanted = [(kernel, name) for kernel in kernels for name in VARIANTS]

    def made(each: tuple[TritonKernel, str]) -> dict[str, Any]:
        return _variant(part.files["kernels.py"], *each, capability, folder)

    with ThreadPoolExecutor(parallel) as pool:
        variants = list(pool.map(made, wanted))
    files = {each["file"]: folder / each["file"] for each in variants}
    described = []
    for number, kernel in enumerate(kernels):
        own = variants[number * len(VARIANTS) : (number + 1) * len(VARIANTS)]
        described.append(kernel_of(kernel, dict(zip(VARIANTS, own, strict=True))))
    entry = launch_entry(options, open_store(options.cache_dir))
    if entry is not None:  # its folder may go away with it
        files[LIBRARY] = Path(shutil.copy(entry.folder / LAUNCH_FILE, folder / LIBRARY))
    return KernelPart(LOADER, files, {"capability": list(capability), "kernels": described})


def keep(
    part: KernelPart, launchers: Mapping[str, Launcher], library: bytes, store: CacheStore
) -> str:
    """Keep what Triton has built for the current GPU; why not, or ""."""
    files: dict[str, bytes] = {LIBRARY: library}
    told = []
    for kernel in kernels_of(part):
        compiled = launchers[kernel.name].prepare(aligned=True)
        try:
            variant = variant_of(compiled, f"{kernel.name}-aligned")
        except InductorError as error:
            return str(error)
        files[variant["file"]] = compiled.asm["cubin"]
        constants = [value for _, value in kernel.constants]
        told.append({**kernel_of(kernel, {"aligned": variant}), "constants": constants})
    files[KERNELS] = json.dumps(told).encode()
    text = part.files["kernels.py"].read_text()
    return store.put(key_of(part, text, torch.cuda.get_device_capability()), files)


def _variant(
    path: Path, kernel: TritonKernel, name: str, capability: tuple[int, int], folder: Path
) -> dict[str, Any]:
    from flambeau_inductor.codegen.triton import build  # Triton is optional

    compiled = build.compile_offline(
        path, kernel, 10 * capability[0] + capability[1], aligned=VARIANTS[name]
    )
    lacking = []
    if kernel.descriptors and not describes(capability):
        lacking.append("tensor descriptors")
    if compiled.metadata.shared > shared_bytes_of(capability):
        lacking.append(f"{compiled.metadata.shared >> 10} KiB of shared memory for a program")
    if lacking:
        raise InductorError(
            f"{kernel.name} needs {' and '.join(lacking)}, which no GPU of compute capability "
            f"{dotted(capability)} has"
        )
    told = variant_of(compiled, f"{kernel.name}-{name}")
    (folder / told["file"]).write_bytes(compiled.asm["cubin"])
    return told


def kernel_of(kernel: TritonKernel, variants: Mapping[str, Any]) -> dict[str, Any]:
    """Launch data of a kernel besides its binaries."""
    return {
        "name": kernel.name,
        "programs": kernel.programs,
        "addresses": len(kernel.pointers),
        "descriptors": [list(each) for each in kernel.descriptors],
        "sizes": len(kernel.sizes),
        "variants": dict(variants),
    }


def variant_of(compiled: Any, name: str) -> dict[str, Any]:
    """Launch data of a kernel that Triton has compiled; its binary is to be in file `name`.cubin.

    Raises InductorError for a kernel that only Triton can launch.
    """
    metadata = compiled.metadata
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "num_ctas", 1) != 1:
        raise InductorError(f"{name} needs Triton to be launched")
    try:
        entry = entry_of(compiled.asm["ptx"])
    except ValueError as error:
        raise InductorError(f"{name}: {error}") from error
    return {
        "file": f"{name}.cubin",
        "name": metadata.name,
        "entry": entry,
        "parameters": parameters_of(entry),
        "warps": metadata.num_warps,
        "shared": metadata.shared,
        "descriptors": _plain(getattr(metadata, "tensordesc_meta", None) or ()),
        "waits": waits(compiled.asm["ptx"]),
    }


def _plain(metas: Sequence[Any]) -> list[Any]:
    """What Triton says of descriptors, of JSON's kinds. Raises TypeError for anything else."""
    plain: list[Any] = json.loads(json.dumps(list(metas)))
    return plain
