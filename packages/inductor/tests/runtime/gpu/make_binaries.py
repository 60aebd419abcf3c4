"""Make the binaries of a few kernels with no GPU, and print the part that holds them as JSON.

Run as a program (folder, capability, one bit each), in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from flambeau_inductor import Options
from flambeau_inductor.cache import CacheStore
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import generate_module
from flambeau_inductor.errors import InductorError
from flambeau_inductor.kernels import triton_binaries
from flambeau_inductor.kernels.triton_binaries import as_binaries, keep
from flambeau_inductor.runtime.gpu.binaries import LIBRARY
from flambeau_inductor.runtime.gpu.launch import Launcher
from flambeau_inductor.runtime.kernel_part import KernelPart

from tests.codegen import loops
from tests.codegen.triton.offline.compile_classes import dtypes_of
from tests.templates.compile_offline import products

F32 = torch.float32
KINDS = (80, 86, 89, 100)


def main(folder: Path, capability: str) -> None:
    """A softmax, a sum of everything, and products with and without tensor descriptors."""
    made = [loops.softmax(64, 100, torch.bfloat16), loops.pointwise("pow", 2, 4096, F32, F32)]
    made = [replace(loop, name=f"loop{k}") for k, loop in enumerate(made)]
    dtypes = {name: dtype for loop in made for name, dtype in dtypes_of(loop).items()}
    source = generate_module(made, dtypes, dict.fromkeys(dtypes, 1 << 20))
    kept = [kernel for kernel in products() if kernel.name in ("middle", "described")]
    text = "\n\n\n".join([source.text, *(kernel.source for kernel in kept)])
    (folder / "kernels.py").write_text(text)
    kernels = [*source.kernels, *kept]
    part = KernelPart(
        "triton",
        {"kernels.py": folder / "kernels.py"},
        json.loads(json.dumps({"kernels": [asdict(kernel) for kernel in kernels]})),
    )
    binaries = as_binaries(part, divmod(int(capability), 10), folder, Options(), 2)
    keep_them(part, kernels, binaries.files[LIBRARY], folder, int(capability))
    kinds = {kind: of_kind(part, kind, folder / str(kind)) for kind in KINDS}
    kinds[0] = of_kind(part, KINDS[0], folder / str(KINDS[0]), 4096)
    print(json.dumps({"made": described(binaries), "triton": described(part), "kinds": kinds}))


def of_kind(part: KernelPart, capability: int, folder: Path, shared: int = 0) -> dict[str, Any]:
    """Kernels for another kind of GPU, with `shared` bytes if any are given: what of the binary
    says for which, or why there is none."""
    folder.mkdir(exist_ok=True)
    found: dict[str, Any] = {}
    if shared:
        triton_binaries.shared_bytes_of = lambda capability: shared
    for kernel in part.data["kernels"][1:]:
        own = KernelPart("triton", part.files, {"kernels": [kernel]})
        try:
            made = as_binaries(own, divmod(capability, 10), folder, Options(), 2)
            binary = made.files[f"{kernel['name']}-any.cubin"].read_bytes()
            found[kernel["name"]] = [made.data["capability"], *binary[48:50]]
        except InductorError as error:
            found[kernel["name"]] = str(error)
    return found


def described(part: KernelPart) -> dict[str, object]:
    """A part as JSON."""
    files = {name: str(path) for name, path in part.files.items()}
    return {"loader": part.loader, "files": files, "data": dict(part.data)}


def keep_them(
    part: KernelPart, kernels: Sequence[TritonKernel], library: Path, folder: Path, capability: int
) -> None:
    """Put them into the store in `folder`/store, as after a build on a GPU."""

    def launcher(kernel: TritonKernel) -> Launcher:
        def prepare(aligned: bool) -> Any:
            return compile_offline(part.files["kernels.py"], kernel, capability, aligned=aligned)

        return Launcher(kernel.name, kernel.programs, len(kernel.pointers), (), prepare, None)

    torch.cuda.get_device_capability = lambda device=None: divmod(capability, 10)
    launchers = {kernel.name: launcher(kernel) for kernel in kernels}
    assert keep(part, launchers, library.read_bytes(), CacheStore(folder / "store")) == ""


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
