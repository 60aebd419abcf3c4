"""torch.distributed: groups of processes, reductions, and the operators that communicate.

In: nothing. Out: torch's callables, and facts about a group. Invariant: a build of torch without
torch.distributed has none of them; what a release lacks is left out. Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from flambeau_capture._torch_compat.state import are_processes_together

AVAILABLE = dist.is_available()
FUNCTIONAL = "torch.distributed._functional_collectives"
#: a file whose functions raise where torch's own compiler calls them
REFUSED_TO_OTHERS = str(Path("torch", "distributed", "nn", "functional.py"))
MESH = "torch.distributed.device_mesh"

#: groups and reductions: objects that never change
GROUPS: tuple[type, ...] = (dist.ProcessGroup,) if AVAILABLE else ()
REDUCTIONS: tuple[type, ...] = (dist.ReduceOp.RedOpType, dist.ReduceOp) if AVAILABLE else ()


def collectives(*names: str) -> dict[str, Any]:
    """Functions of torch.distributed by name."""
    return {name: getattr(dist, name) for name in names if hasattr(dist, name)}


def functional(name: str) -> Any:
    """An operator that communicates and writes to nothing. Its shape rule and its derivative are
    registered when torch's module of them is imported."""
    from torch.distributed import _functional_collectives  # noqa: F401 - few programs need it

    own = torch.ops._c10d_functional
    return {
        "all_reduce": own.all_reduce,
        "broadcast": own.broadcast,
        "all_gather_into_tensor": own.all_gather_into_tensor,
        "reduce_scatter_tensor": own.reduce_scatter_tensor,
        "all_to_all_single": own.all_to_all_single,
        "wait_tensor": own.wait_tensor,
    }[name].default


def world_questions() -> tuple[Any, ...]:
    """Getters of the group of all processes: `dist.group.WORLD`."""
    if not AVAILABLE:
        return ()
    kinds = (dist.group, dist.GroupMember)
    return tuple({type(kind).__dict__["WORLD"].fget for kind in kinds})


def world() -> Any:
    """The group of all processes; None where there is none."""
    return dist.group.WORLD if are_processes_together() else None


def group_questions() -> tuple[Any, ...]:
    """Queries of a group, or of all processes, whose answers stay as long as it is there."""
    if not AVAILABLE:
        return ()
    own = dist.distributed_c10d
    names = (
        "get_rank", "get_world_size", "get_backend", "get_global_rank", "get_group_rank",
        "get_process_group_ranks", "_get_group_size_by_name", "_resolve_process_group",
        "_get_default_group", "_rank_not_in_group", "_get_group_tag",
        "_find_or_create_pg_by_ranks_and_tag",
    )  # fmt: skip
    return tuple(getattr(own, name) for name in names if hasattr(own, name))


def in_mesh(value: Any) -> bool:
    """Whether an object is a mesh of devices, whose axes are groups."""
    module = sys.modules.get(MESH)
    return module is not None and issubclass(type(value), module.DeviceMesh)


#: what a step of data-parallel training calls
DATA_PARALLEL: tuple[Any, ...] = ()
if AVAILABLE:
    from torch.nn.parallel import DistributedDataParallel

    DATA_PARALLEL = (DistributedDataParallel.forward,)


def reduced_parameters(wrapper: Any) -> list[torch.Tensor]:
    """The parameters whose gradients a `DistributedDataParallel` sums, each once."""
    return [each for each in wrapper.module.parameters() if each.requires_grad]


def hook_of_reducer(wrapper: Any) -> str:
    """The name of what its reducer calls in place of its sum, torch's own hooks among them."""
    return str(wrapper._get_ddp_logging_data().get("comm_hook", ""))


def bucket_limits(wrapper: Any) -> tuple[int, int]:
    """Bytes that its first bucket takes, and each one after it."""
    other = int(wrapper.bucket_bytes_cap)
    return min(int(getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1 << 20)), other), other


def size_of_group(group: Any) -> int:
    return int(group.size())


#: in torch's functional collectives: what finds a group, and what answers its name
GROUP_FINDERS = ("_resolve_group", "_resolve_group_name", "_group_or_group_name")
#: ... and what makes of a started collective's result a tensor that waits at its first use
WAITS_LATER = "_maybe_wrap_tensor"


def group_of(given: Any, tag: str = "") -> Any:
    """A group as the functional collectives name it: itself, its name, a mesh's axis. Raises what
    they raise."""
    from torch.distributed import _functional_collectives  # few programs need it

    found = _functional_collectives._resolve_group_name(given, tag)
    return dist.distributed_c10d._resolve_process_group(found)  # type: ignore[attr-defined]


def name_of_group(group: Any) -> str:
    return str(group.group_name)


def reduction_name(value: Any) -> str | None:
    """A reduction as operators name it; None for one with a factor."""
    if isinstance(value, str):
        return value.lower()
    try:
        found = {str(each.name).lower() for each in _reductions() if each == value}
    except (TypeError, AttributeError):
        return None
    found.discard("premul_sum")
    return next(iter(found), None)


def _reductions() -> list[Any]:
    return list(dist.ReduceOp.RedOpType.__members__.values())


class FinishedWork(dist.Work if AVAILABLE else object):  # type: ignore[misc]
    """The handle of a collective that has ended: what a graph started, it waited for."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self._tensors = [*tensors]

    def wait(self, *timeout: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._tensors)
        return future
