"""The kernels of one language as files and data: a part of an artifact.

In: what kernels were built into. Out: what a loader gets and returns. Invariant: data alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CannotLoad(Exception):
    """An artifact that this process cannot run, with the reason."""


@dataclass(frozen=True, slots=True)
class KernelPart:
    """The kernels of one language. `files`: where each file is now; `data`: of JSON's kinds."""

    loader: str
    files: Mapping[str, Path]
    data: Mapping[str, Any]


Loaded = tuple[Mapping[str, Any], tuple[object, ...]]
Loader = Callable[[KernelPart, int | None], Loaded]
"""From a part and the GPU it is for to functions by name, and what must outlive them."""
