"""Data checks: operators that raise on bad values.

In: what the check found, the words of the error, the tensor that was checked. Out: nothing.
Invariant: they have no result, so whoever traces a graph keeps them for what they do; they raise
the error that eager code raises.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

NAME = "flambeau_capture::require"
ALL_TRUE = "flambeau_capture::require_all"
#: what a check of the program may raise
ERRORS = {
    kind.__name__: kind
    for kind in (
        ArithmeticError, AssertionError, Exception, IndexError, KeyError, LookupError,
        NotImplementedError, OverflowError, RuntimeError, TypeError, ValueError,
    )
}  # fmt: skip


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


def _nothing(valid: torch.Tensor, value: Any, text: str) -> None:
    return None


@functools.cache
def require_all() -> Any:
    """`flambeau_capture::require_all`, which raises an error of a class of `ERRORS`."""
    torch.library.define(ALL_TRUE, "(Tensor valid, str error, str text) -> ()")
    torch.library.impl(ALL_TRUE, "CompositeExplicitAutograd", _check_all)
    torch.library.register_fake(ALL_TRUE, _nothing)
    return torch.ops.flambeau_capture.require_all.default


def _check_all(valid: torch.Tensor, error: str, text: str) -> None:
    if not bool(valid.all()):
        raise ERRORS[error](text)
