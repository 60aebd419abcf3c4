"""Running one hand-made loop under the interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.codegen.triton.tiling import Tiling
from flambeau_inductor.ir.loops import Loop


def run_loop(
    loop: Loop, buffers: dict[str, torch.Tensor], folder: Path, tiling: Tiling | None = None
) -> None:
    """Generate, load and launch `loop` on `buffers` (by name), in place."""
    dtypes = {name: tensor.dtype for name, tensor in buffers.items()}
    numels = {name: tensor.numel() for name, tensor in buffers.items()}
    kernel = generate(loop, dtypes, numels, tiling)
    path = folder / f"{loop.name}.py"
    path.write_text(module_text([kernel.source]))
    launcher = build(path, [replace(kernel)])[kernel.name]
    launcher(*(buffers[name] for name in kernel.arguments))
