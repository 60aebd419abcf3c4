"""Triton kernels of an artifact, built.

In: the Triton part of an artifact, options. Out: its functions. Invariant: what was built for a GPU
is kept where `options` say so.
"""

from __future__ import annotations

import torch

from flambeau_inductor.cache import open_store
from flambeau_inductor.errors import CacheWarning, warn
from flambeau_inductor.kernels.launching import LAUNCH_FILE, kernels_of, launch_entry
from flambeau_inductor.kernels.triton_binaries import keep
from flambeau_inductor.options import Options
from flambeau_inductor.runtime.gpu.launch import load_library
from flambeau_inductor.runtime.kernel_part import KernelPart, Loaded


def build_triton(part: KernelPart, gpu: int | None, options: Options) -> Loaded:
    """The functions of an artifact's Triton kernels, built, and kept if `options` say so; `gpu` is
    None under Triton's interpreter."""
    from flambeau_inductor.codegen.triton import build as builder  # most programs never need it

    path, store = part.files["kernels.py"], open_store(options.cache_dir)
    if gpu is None:
        return dict(builder.build(path, kernels_of(part))), ()
    with torch.cuda.device(gpu):
        entry = launch_entry(options, store)
        library = None if entry is None else entry.folder / LAUNCH_FILE
        made = builder.build(
            path, kernels_of(part), None if library is None else load_library(library)
        )
        if options.kept_binaries and library is not None:
            if fault := keep(part, made, library.read_bytes(), store):
                warn(f"binaries are not kept: {fault}", CacheWarning)
        return {name: launcher.queue for name, launcher in made.items()}, (made, store)
