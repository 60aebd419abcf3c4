"""torch.distributed.tensor: placements, distributed tensors, and what changes between them.

In: nothing. Out: questions, and the target of a graph's node. Invariant: nothing is imported that
the program has not imported. Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

PLACEMENTS = "torch.distributed.tensor.placement_types"
DISTRIBUTED_TENSORS = "torch.distributed.tensor._api"
#: methods of `DTensor`; the first is static and is given a plain tensor
CHANGES_OF_PLACEMENT = ("from_local", "to_local", "redistribute", "full_tensor")


def is_placement_class(kind: type) -> bool:
    module = sys.modules.get(PLACEMENTS)
    return module is not None and issubclass(kind, module.Placement)


def is_placement(value: object) -> bool:
    return is_placement_class(type(value))


def is_distributed(value: object) -> bool:
    module = sys.modules.get(DISTRIBUTED_TENSORS)
    return module is not None and issubclass(type(value), module.DTensor)


def is_parameter(value: object) -> bool:
    return isinstance(value, torch.nn.Parameter)


class PlacedCall:
    """A method of distributed tensors with all that it is given besides the tensor. What it
    communicates is waited for: when, is for the compiler of the graph to say."""

    def __init__(self, method: Callable[..., Any], given: dict[str, Any]) -> None:
        self._method, self._given = method, given
        self.__name__ = self.__qualname__ = method.__name__
        self.__module__ = __name__

    def __call__(self, tensor: torch.Tensor) -> Any:
        return self._method(tensor, **self._given)

    def __repr__(self) -> str:
        return f"{self.__name__}({', '.join(f'{k}={v}' for k, v in self._given.items())})"


def placed_call(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> PlacedCall | None:
    """The target for a call of one of `CHANGES_OF_PLACEMENT`; None where it would communicate to
    find out whether it was called rightly. Raises TypeError for what the method does not take."""
    method = getattr(sys.modules[DISTRIBUTED_TENSORS].DTensor, name)
    given = dict(inspect.signature(method).bind(None, *args, **kwargs).arguments)
    given.pop(next(iter(given)))
    if given.pop("run_check", False):
        return None
    given.pop("async_op", None)
    return PlacedCall(method, given)
