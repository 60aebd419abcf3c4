"""Loaders of an artifact's kernels in a process with the compiler.

In: options. Out: a table like `runtime.artifact.LOADERS`, which is part of it. Invariant: nothing
of the compiler is imported before a part needs it; kept binaries are looked for once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.cache import open_store
from flambeau_inductor.kernels.kept_binaries import load
from flambeau_inductor.options import Options
from flambeau_inductor.runtime.artifact import LOADERS
from flambeau_inductor.runtime.kernel_part import KernelPart, Loaded, Loader


def loaders(options: Options) -> Mapping[str, Loader]:
    """The runtime's loaders, and those that build."""

    def from_triton(part: KernelPart, gpu: int | None) -> Loaded:
        if gpu is not None and options.kept_binaries:
            with torch.cuda.device(gpu):
                found = load(part, open_store(options.cache_dir))
            if found is not None:
                return found
        # a warm start does without the compiler
        from flambeau_inductor.kernels.triton_build import build_triton

        return build_triton(part, gpu, options)

    return {**LOADERS, "triton": from_triton}
