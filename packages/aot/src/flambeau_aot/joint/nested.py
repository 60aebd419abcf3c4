"""Nested tensors in operators' arguments and results.

In: tensors, numbers, and lists, tuples and dicts of them. Out: the tensors in order, or the same
structure with others in their places. Invariant: what is no tensor and no container stays itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in tensors_in(item)]
    if isinstance(value, dict):
        return [found for item in value.values() for found in tensors_in(item)]
    return []


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """The structure with `change` of each part that is no container; tuples become plain ones."""
    if isinstance(value, list):
        return [map_leaves(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple([map_leaves(item, change) for item in value])
    if isinstance(value, dict):
        return {name: map_leaves(item, change) for name, item in value.items()}
    return change(value)


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The structure with `change` of each tensor."""
    return map_leaves(value, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf)
