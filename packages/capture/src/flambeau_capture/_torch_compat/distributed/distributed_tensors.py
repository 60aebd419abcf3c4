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


def answers_by(kind: type) -> tuple[int, ...]:
    """What decides, besides its arguments, how a class of tensors answers operators: which of them
    a context such as `loss_parallel` has taken over, and whether plain operands are copies."""
    module = sys.modules.get(DISTRIBUTED_TENSORS)
    if module is None or not issubclass(kind, module.DTensor):
        return ()
    dispatcher = module.DTensor._op_dispatcher
    implicit = int(dispatcher._allow_implicit_replication)
    return (implicit, *map(id, dispatcher._custom_op_handlers.values()))


def is_parameter(value: object) -> bool:
    return isinstance(value, torch.nn.Parameter)


class PlacedCall:
    """A method of distributed tensors with all that it is given besides the tensor. What it
    communicates is waited for: when, is for the compiler of the graph to say."""

    def __init__(self, method: Callable[..., Any], given: dict[str, Any]) -> None:
        self._method, self.given = method, given
        self.__name__ = self.__qualname__ = method.__name__
        self.__module__ = __name__

    def __call__(self, tensor: torch.Tensor) -> Any:
        return self._method(tensor, **self.given)

    def __repr__(self) -> str:
        return f"{self.__name__}({', '.join(f'{k}={v}' for k, v in self.given.items())})"


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


def distribute_call(args: Sequence[Any], kwargs: dict[str, Any]) -> PlacedCall | None:
    """The target for a call of `distribute_tensor` of a tensor that does not require grad; None for
    a form of it that is left to eager. Raises TypeError for what the function does not take."""
    function = sys.modules[DISTRIBUTED_TENSORS].distribute_tensor
    bound = inspect.signature(function).bind(None, *args, **kwargs)
    bound.apply_defaults()
    _, mesh, placements, source = bound.arguments.values()
    kinds = sys.modules[PLACEMENTS]
    plain = (kinds.Shard, kinds.Replicate)
    if mesh is None or mesh.get_coordinate() is None:
        return None
    placements = [kinds.Replicate()] * mesh.ndim if placements is None else placements
    if len(placements) != mesh.ndim or any(type(each) not in plain for each in placements):
        return None
    return PlacedCall(_distribute, {"mesh": mesh, "placements": placements, "source": source})


def _distribute(
    tensor: torch.Tensor, mesh: Any, placements: Sequence[Any], source: int | None
) -> Any:
    """What `distribute_tensor` does, by collectives that a graph holds: a shard is cut from what
    the source broadcasts, where eager scatters; copies are the tensor itself, written to."""
    local, found = tensor.detach(), []
    for axis, placement in enumerate(placements):
        if source is not None:
            local = local.contiguous()
            group = mesh.get_group(axis).group_name
            sent = torch.ops._c10d_functional.broadcast(local, source, group)
            sent = torch.ops._c10d_functional.wait_tensor(sent)
        if placement.is_replicate():
            found.append(placement)
            local = local if source is None else local.copy_(sent)
            continue
        whole, dim = (local if source is None else sent), placement.dim % tensor.ndim
        found.append(type(placement)(dim))
        each = -(-whole.size(dim) // mesh.size(axis))
        start = min(each * mesh.get_local_rank(axis), whole.size(dim))
        part = whole.narrow(dim, start, min(each, whole.size(dim) - start))
        local = part.clone(memory_format=torch.contiguous_format)
    made = sys.modules[DISTRIBUTED_TENSORS].DTensor.from_local
    return made(local, mesh, found, shape=tensor.size(), stride=tensor.stride())


_distribute.__name__ = _distribute.__qualname__ = "distribute_tensor"
