"""An operator that raises where a check on data fails.

In: what the check found, the tensor that was checked, the words before it. Out: nothing. Invariant:
it has no result, so whoever traces a graph keeps it for what it does; it raises the ValueError that
eager code raises.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

NAME = "flambeau_capture::require"


@functools.cache
def require() -> Any:
    """`flambeau_capture::require`, registered when a graph first needs it."""
    torch.library.define(NAME, "(Tensor valid, Tensor value, str text) -> ()")
    torch.library.impl(NAME, "CompositeExplicitAutograd", _check)
    torch.library.register_fake(NAME, _nothing)
    return torch.ops.flambeau_capture.require.default


def _check(valid: torch.Tensor, value: torch.Tensor, text: str) -> None:
    if not bool(valid.all()):
        raise ValueError(f"{text}{value}")


def _nothing(valid: torch.Tensor, value: torch.Tensor, text: str) -> None:
    return None
