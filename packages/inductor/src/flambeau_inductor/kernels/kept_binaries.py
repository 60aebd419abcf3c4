"""The cache of the binaries of Triton kernels.

In: the Triton part of an artifact, a store. Out: the part's functions, loaded by the driver, or
None: the caller builds them and keeps what was built. Invariant: an entry is found by everything
that decides a binary (kernels, compute capability, versions, our code); buffers that are not
aligned are served by what Triton compiles at their first launch.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from flambeau_inductor.cache import CacheStore, Key, code, key, versions
from flambeau_inductor.runtime.gpu.binaries import CudaDriver, cuda_driver, launchers_of
from flambeau_inductor.runtime.kernel_part import KernelPart, Loaded

KERNELS = "kernels.json"


def key_of(part: KernelPart, text: str, capability: tuple[int, ...]) -> Key:
    """What the binaries of a part are found by; `text` is that of its module."""
    return key(
        "kernels",
        language="cubin",
        text=text,
        kernels=json.dumps(part.data["kernels"], sort_keys=True),
        capability=".".join(map(str, capability)),
        versions=versions(),
        code=code(),
    )


def load(part: KernelPart, store: CacheStore, driver: CudaDriver | None = None) -> Loaded | None:
    """The functions of a part on the current GPU; None where its binaries are not kept."""
    text = part.files["kernels.py"].read_text()
    place = store.find(key_of(part, text, torch.cuda.get_device_capability()))
    if place is None:
        return None
    try:
        kernels = json.loads((place / KERNELS).read_text())
        files = {path.name: path for path in place.iterdir()}
        binaries = KernelPart("cubin", files, {"kernels": kernels})
        driver = cuda_driver(torch.cuda.current_device()) if driver is None else driver
        functions, kept = launchers_of(binaries, driver, lambda name: _unaligned(part, text, name))
    except (OSError, LookupError, TypeError, ValueError):
        return None  # whole, but not what this version writes: it is built again
    return functions, (*kept, store)


def _unaligned(part: KernelPart, text: str, name: str) -> Any:
    """What Triton compiles for any buffers."""
    # few programs have buffers that are not aligned
    from flambeau_inductor.codegen.triton.build import compile_unaligned
    from flambeau_inductor.kernels.launching import kernels_of

    kernel = next(each for each in kernels_of(part) if each.name == name)
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        path = Path(folder) / "kernels.py"  # its entry may be gone by now
        path.write_text(text)
        return compile_unaligned(path, kernel)
