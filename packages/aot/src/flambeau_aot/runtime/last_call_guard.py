"""Predicate of a call with the last call's metadata, as one expression.

What comes in: the flat tensors of a call. What goes out: a predicate on later calls' arguments.
Invariant: it holds only where `metadata_of` gives what it gave for that call, so that it may
stand in for a look-up by metadata; where it says no, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot.runtime.codegen import defined

Predicate = Callable[[tuple[Any, ...]], bool]
_MOST = 8


def like(values: Sequence[Any]) -> Predicate | None:
    """A predicate on argument tuples; None unless the call is of a few distinct tensors."""
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    if not values or len(values) > _MOST or not tensors:
        return None
    if len({id(value) for value in values}) != len(values):
        return None
    scope: dict[str, Any] = {
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
    }
    tests = [
        f"grad() is {torch.is_grad_enabled()}",
        f"inference() is {torch.is_inference_mode_enabled()}",
    ]
    for place, value in enumerate(values):
        scope[f"type{place}"], scope[f"shape{place}"] = type(value), value.shape
        scope[f"stride{place}"], scope[f"dtype{place}"] = value.stride(), value.dtype
        scope[f"device{place}"] = value.device
        name = f"a{place}"
        tests += [
            f"type({name}) is type{place}",
            f"{name}.shape == shape{place}",
            f"{name}.dtype is dtype{place}",
            f"{name}.requires_grad is {value.requires_grad}",
            f"{name}.is_leaf is {value.is_leaf}",
            f"{name}.stride() == stride{place}",
            f"{name}.device == device{place}",
        ]
        tests += [f"{name} is not a{other}" for other in range(place)]
    names = ", ".join(f"a{place}" for place in range(len(values)))
    lines = [
        "def like(args):",
        f"    if len(args) != {len(values)}:",
        "        return False",
        f"    {names}{',' if len(values) == 1 else ''} = args",
        f"    return {' and '.join(tests)}",
    ]
    return defined("like", lines, scope)
