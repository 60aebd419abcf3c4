"""What loads the kernels of an artifact in a process that has the compiler.

In: options. Out: a table like `runtime.artifact.LOADERS`, which is part of it. Invariant: nothing
of the compiler is imported before a part needs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from flambeau_inductor.options import Options
from flambeau_inductor.runtime.artifact import LOADERS, Loaded, Loader, Part


def loaders(options: Options) -> Mapping[str, Loader]:
    """The runtime's loaders, and those that build."""

    def from_triton(part: Part, gpu: int | None) -> Loaded:
        from flambeau_inductor.kernels import load_triton  # graphs of a CPU do without all of it

        return load_triton(part, gpu, options)

    return {**LOADERS, "triton": from_triton}
