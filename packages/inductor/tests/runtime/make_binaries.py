"""Make the binaries of a few kernels with no GPU, and print the part that holds them as JSON.

Run as a program (folder, capability, one bit each), in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from flambeau_inductor import Options
from flambeau_inductor.binaries import as_binaries
from flambeau_inductor.codegen.triton import generate_module
from flambeau_inductor.runtime.artifact import Part

from tests.codegen import loops
from tests.codegen.triton.compile_classes import dtypes_of
from tests.templates.compile_offline import products

F32 = torch.float32


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
    part = Part(
        "triton",
        {"kernels.py": folder / "kernels.py"},
        json.loads(json.dumps({"kernels": [asdict(kernel) for kernel in kernels]})),
    )
    binaries = as_binaries(part, (int(capability[0]), int(capability[1])), folder, Options(), 2)
    files = {name: str(path) for name, path in binaries.files.items()}
    print(json.dumps({"loader": binaries.loader, "files": files, "data": dict(binaries.data)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
