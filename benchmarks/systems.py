"""Who is measured: eager, Flambeau, and the incumbent.

In: a function. Out: the same function under each system. Invariant: the incumbent is named in this
file alone, and no package of ours ever imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Function = Callable[..., Any]


def _eager(fn: Function) -> Function:
    return fn


def _flambeau(fn: Function) -> Function:
    import flambeau  # its import time is part of its first call

    return flambeau.compile(fn)


def _incumbent(fn: Function) -> Function:
    return torch.compile(fn)


SYSTEMS: dict[str, Callable[[Function], Function]] = {
    "eager": _eager,
    "flambeau": _flambeau,
    "incumbent": _incumbent,
}


def cache_environment(folder: str) -> dict[str, str]:
    """Environment that gives every system its own cache under `folder`."""
    return {
        "FLAMBEAU_CACHE_DIR": f"{folder}/flambeau",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/incumbent",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }
