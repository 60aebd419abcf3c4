"""torch.distributed.fsdp: what `fully_shard` gathers and scatters, as one operation.

In: a module's hooks. Out: the state that they belong to, what it says of communication, and the
target of a graph's node. Invariant: nothing is imported that the program has not imported; what a
target communicates are functional collectives, of the sizes and in the dtypes of torch's own. What
the program has changed since the forward is examined again in the backward pass: torch's own code
scatters then.
Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx

from flambeau_capture._torch_compat.distributed.collectives import (
    functional,
    name_of_group,
    reduction_name,
    size_of_group,
)
from flambeau_capture._torch_compat.distributed.distributed_tensors import PlacedCall, placed_call

FULLY_SHARDED = "torch.distributed.fsdp._fully_shard._fsdp_state"
GATHERS, SCATTERS = "_pre_forward", "_post_forward"
_OF_GROUPS = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_OF_COLLECTIVES = "torch.distributed.fsdp._fully_shard._fsdp_collectives"
#: by module and name, what casts a forward's arguments and results
CASTS = (
    (FULLY_SHARDED, "_cast_forward_inputs"),
    (FULLY_SHARDED, "_cast_output_dtype"),
    ("torch.distributed.fsdp._fully_shard._fsdp_common", "_cast_fp_tensor"),
    ("torch.distributed.utils", "_apply_to_tensors"),
    ("torch.distributed.utils", "apply"),
)

#: attributes of a state, of a group of its parameters, and of each of them, with the values under
#: which a forward gathers before and a backward scatters after it, and that is all
PLAIN_STATE: dict[str, Any] = {"_training_state": "IDLE"}
PLAIN_GROUP: dict[str, Any] = {
    "_training_state": "IDLE", "_sharded_state": "SHARDED", "_all_gather_result": None,
    "reduce_grads": True, "all_reduce_grads": True, "reshard_after_backward": True,
    "reduce_scatter_unused_params": False, "unshard_in_backward": True, "_all_reduce_hook": None,
    "_partial_reduce_output": None, "force_sum_reduction_for_comms": False,
}  # fmt: skip
PLAIN_PARAMETER: dict[str, Any] = {"offload_to_cpu": False}
#: attributes of a group by which what it communicates is chosen: known by identity
GROUP_CHOICES = (
    "mesh_info", "post_forward_mesh_info", "gradient_divide_factor", "_all_gather_comm",
    "_reduce_scatter_comm",
)  # fmt: skip
#: of a group's first choice, where a program gives the second collective a group of its own
SCATTERED_IN = "reduce_scatter_process_group"


#: what the forward alone reads
_OF_FORWARD = frozenset({"_training_state", "unshard_in_backward", "post_forward_mesh_info"})


def sharding_of(module: Any) -> Any:
    """The state whose hook gathers the parameters of a module; None: it has none."""
    found = sys.modules.get(FULLY_SHARDED)
    if found is None:
        return None
    for hook in module._forward_pre_hooks.values():
        state = getattr(hook, "__self__", None)
        if isinstance(state, found.FSDPState) and hook.__name__ == GATHERS:
            return state
    return None


def begin_sharding(state: Any) -> None:
    """What the first forward does before all else: find the root, and what is below it."""
    state._lazy_init()


def is_called_alone(state: Any) -> bool:
    """Whether a state is of one module, whose parameters are communicated together."""
    return len(state._modules) == 1 and len(groups_of(state)) <= 1


def groups_of(state: Any) -> list[tuple[str, int | None, Any]]:
    """The groups of a state's parameters, each with the attribute that it is in and its place there
    (None: it is the attribute itself, as in releases that know one group a state)."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return [("_fsdp_param_groups", place, group) for place, group in enumerate(several)]
    group = state._fsdp_param_group
    return [] if group is None else [("_fsdp_param_group", None, group)]


def places_of(module: Any, group: Any) -> Iterator[list[tuple[str, str]]]:
    """For each parameter of a group, the paths of the modules that have it, and its names there."""
    paths = {id(each): path for path, each in module.named_modules()}
    for parameter in group.fsdp_params:
        info = parameter._module_info
        modules = (info.module, *info.shared_modules)
        names = (info.param_name, *info.shared_param_names)
        yield [(paths[id(each)], name) for each, name in zip(modules, names, strict=True)]


def _spec_of_whole(parameter: Any) -> Any:
    """What a whole parameter is on other axes of the mesh than the one that shards it; None: it is
    a plain tensor."""
    names = ("_unsharded_dtensor_spec", "_tp_spec")
    return next((getattr(parameter, each) for each in names if hasattr(parameter, each)), None)


def also_distributed(parameter: Any) -> PlacedCall | None:
    """What makes of a gathered tensor the parameter that a forward sees; None: it is that."""
    spec = _spec_of_whole(parameter)
    if spec is None:
        return None
    sizes = {"shape": spec.tensor_meta.shape, "stride": spec.tensor_meta.stride}
    return placed_call("from_local", [spec.mesh, spec.placements], sizes)


@dataclass(frozen=True)
class Shard:
    """How a parameter is spread: the dimension, its whole sizes, those of a padded shard."""

    dim: int
    whole: tuple[int, ...]
    padded: tuple[int, ...]
    trained: bool


class Gather:
    """Shards in, whole parameters out, and gradients scattered back: one collective each way.

    again: the backward pass gathers again, for nothing keeps the whole parameters until then.
    narrow: by place, the dtypes of those that are gathered in it, for their only reader casts them.
    """

    __module__ = __name__
    __name__ = __qualname__ = "gather_parameters"

    def __init__(self, group: Any) -> None:
        self._group, self._read = weakref.ref(group), _read_in_backward(group)
        first = group.fsdp_params[0]
        self.shards = tuple(_shard_of(each) for each in group.fsdp_params)
        self.gathered_in = first.param_dtype or first.orig_dtype
        self.narrow: dict[int, torch.dtype] = {}
        self.kept = group._orig_dtype
        self.again = group.post_forward_mesh_info is not None
        ranks = group._all_gather_process_group
        self.size, self.ranks = size_of_group(ranks), name_of_group(ranks)
        #: what ranks that compare their graphs know a collective by
        self.communicates_in = self.ranks
        self.scattered = name_of_group(group._reduce_scatter_process_group)
        replicas = group._all_reduce_process_group if group._is_hsdp else None
        self.replicas = None if replicas is None else name_of_group(replicas)
        self.summed = group._reduce_dtype or first.param_dtype or first.orig_dtype
        factors = sys.modules[_OF_COLLECTIVES]._get_gradient_divide_factors
        self.before, self.after, *reductions = factors(
            group._reduce_scatter_process_group,
            replicas,
            self.summed,
            group.device.type,
            group.gradient_divide_factor,
        )
        #: what takes the place of a scatter among one
        self.between = group.gradient_divide_factor if self.size == 1 else None
        self.reduction, self.all_reduction = map(reduction_name, reductions)

    @property
    def known_by(self) -> str:
        """All that decides what is communicated, the same in every process of the group."""
        plain = {name: value for name, value in vars(self).items() if name[0] != "_"}
        return ", ".join(f"{name}={value}" for name, value in plain.items())

    def __repr__(self) -> str:
        narrow = f", narrow: {self.narrow}" if self.narrow else ""
        return f"{self.__name__}({len(self.shards)} of {self.size}{narrow})"

    def __call__(self, *parameters: Any) -> tuple[torch.Tensor, ...]:
        found: Any = _Gathered.apply(  # type: ignore[no-untyped-call]
            self, *(each.to_local() for each in parameters)
        )
        return (found,) if isinstance(found, torch.Tensor) else found

    def still_holds(self) -> bool:
        """Whether a backward pass now scatters as it would have when this was made."""
        group = self._group()
        return group is not None and all(map(_same, self._read, _read_in_backward(group)))

    def scatter_by_hooks(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """What torch's own hooks do with whole gradients, as the group says now."""
        group = self._group()
        if group is None:
            raise RuntimeError("the sharded module of a compiled forward is gone in its backward")
        group.unshard()
        group.wait_for_unshard()
        for parameter, gradient in zip(group.fsdp_params, gradients, strict=True):
            if gradient is None or not parameter.sharded_param.requires_grad:
                continue
            whole = parameter.unsharded_param
            own = gradient.detach().to(self.gathered_in, copy=True).contiguous()
            made = also_distributed(parameter)
            own = own if made is None else made(own)
            whole.grad = own if whole.grad is None else whole.grad + own
        kept = group._training_state
        group.post_backward()
        group._training_state = kept
        state = sharding_of(group.modules[0])
        if state is None or state._state_ctx.is_last_backward:
            group.finalize_backward()

    def gathered(self, locals_: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Whole parameters, of a process's shards: one collective for each dtype."""
        dtypes = [self.narrow.get(at, self.gathered_in) for at in range(len(locals_))]
        found: dict[int, torch.Tensor] = {}
        for dtype in dict.fromkeys(dtypes):
            places = [at for at, each in enumerate(dtypes) if each is dtype]
            flat = [
                _padded(locals_[at], self.shards[at].dim, self.shards[at].padded)
                .reshape(-1)
                .to(dtype)
                for at in places
            ]
            whole = torch.cat(flat)
            if self.size > 1:
                whole = functional("all_gather_into_tensor")(whole, self.size, self.ranks)
                whole = functional("wait_tensor")(whole)
            parts = whole.view(self.size, -1).split([each.numel() for each in flat], 1)
            for at, part in zip(places, parts, strict=True):
                found[at] = self._joined(part, self.shards[at])
        return [found[at] for at in range(len(locals_))]

    def _joined(self, part: torch.Tensor, shard: Shard) -> torch.Tensor:
        dim = shard.dim
        apart: Any = part.unflatten(1, shard.padded)  # type: ignore[no-untyped-call]
        whole: torch.Tensor = apart.movedim(0, dim).flatten(dim, dim + 1)
        return whole.narrow(dim, 0, shard.whole[dim]).clone(memory_format=torch.contiguous_format)

    def reduced(
        self, gradients: Sequence[torch.Tensor | None], sizes: Sequence[torch.Size]
    ) -> list[torch.Tensor | None]:
        """A process's shards of what the gradients of all come to."""
        chosen = [
            (place, each)
            for place, each in enumerate(gradients)
            if each is not None and self.shards[place].trained
        ]
        found: list[torch.Tensor | None] = [None] * len(gradients)
        if not chosen:
            return found
        rows = [self._blocks(each, self.shards[place]) for place, each in chosen]
        flat = torch.cat([row.to(self.summed) for row in rows], 1).flatten()
        if self.before not in (None, 1):
            flat = flat / self.before
        if self.size > 1:
            flat = functional("reduce_scatter_tensor")(
                flat, self.reduction, self.size, self.scattered
            )
            flat = functional("wait_tensor")(flat)
        elif self.between not in (None, 1):
            flat = flat / self.between
        if self.replicas is not None:
            flat = functional("all_reduce")(flat, self.all_reduction, self.replicas)
            flat = functional("wait_tensor")(flat)
        if self.after not in (None, 1):
            flat = flat / self.after
        flat = flat.to(self.kept)
        parts = flat.split([row.shape[1] for row in rows])
        for (place, _), part in zip(chosen, parts, strict=True):
            dim, padded = self.shards[place].dim, self.shards[place].padded
            own = part.view(padded).narrow(dim, 0, sizes[place][dim])
            found[place] = own.clone(memory_format=torch.contiguous_format)
        return found

    def _blocks(self, gradient: torch.Tensor, shard: Shard) -> torch.Tensor:
        """A gradient as rows, one for each process."""
        dim, padded = shard.dim, list(shard.padded)
        padded[dim] *= self.size
        sizes = (self.size, shard.padded[dim])
        apart: Any = _padded(gradient, dim, padded).unflatten(dim, sizes)  # type: ignore[no-untyped-call]
        rows: torch.Tensor = apart.movedim(dim, 0).flatten(1)
        return rows


#: what computes in autocast's lower precision, with all that it is given (torch's "Autocast Op
#: Reference")
_NARROW = frozenset(
    {
        torch.nn.functional.linear, torch.matmul, torch.mm, torch.bmm, torch.addmm, operator.matmul,
        torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d,
        torch.conv_transpose3d,
    }
)  # fmt: skip


def computes_in(target: Any, result: Any) -> torch.dtype | None:
    """The dtype to which autocast, as it is now, brings what a call of the graph is given."""
    if not isinstance(target, BuiltinFunctionType) or not isinstance(result, torch.Tensor):
        return None
    if target not in _NARROW:
        return None
    kind = result.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def narrow_gathers(graph: fx.Graph) -> None:
    """Gather in the dtype of their reader the parameters that one call alone reads, and casts: the
    elements are the same whether they are cast before or after."""
    for node in graph.nodes:
        plan = node.target
        if not isinstance(plan, Gather) or {plan.gathered_in, plan.summed} != {torch.float32}:
            continue
        for whole in node.users:
            readers = [*whole.users]
            dtype = readers[0].meta.get(COMPUTES_IN) if len(readers) == 1 else None
            if whole.target is operator.getitem and dtype is not None:
                plan.narrow[whole.args[1]] = dtype
                with torch.no_grad():
                    whole.meta["val"] = whole.meta["val"].to(dtype)


COMPUTES_IN = "computes_in"


def nothing_accumulated(parameter: Any) -> bool:
    """Whether no whole gradient of a parameter waits for one that is scattered with it."""
    whole = getattr(parameter, "_unsharded_param", None)
    return parameter.unsharded_accumulated_grad is None and (whole is None or whole.grad is None)


def _read_in_backward(group: Any) -> list[Any]:
    names = [name for name in (*PLAIN_GROUP, *GROUP_CHOICES) if name not in _OF_FORWARD]
    waiting = map(nothing_accumulated, group.fsdp_params)
    scattered_in = getattr(group.mesh_info, SCATTERED_IN, None)
    return [*(getattr(group, name, None) for name in names), scattered_in, *waiting]


def _same(before: Any, now: Any) -> bool:
    plain = type(before) is type(now) and isinstance(now, bool | int | float)
    return before is now or (plain and before == now)


def _shard_of(parameter: Any) -> Shard:
    return Shard(
        parameter.fsdp_placement.dim,
        tuple(parameter._orig_size),
        tuple(parameter.padded_sharded_param_size),
        parameter.sharded_param.requires_grad,
    )


def _padded(tensor: torch.Tensor, dim: int, sizes: Sequence[int]) -> torch.Tensor:
    more = sizes[dim] - tensor.shape[dim]
    if not more:
        return tensor
    filled = tensor.new_zeros([*tensor.shape[:dim], more, *tensor.shape[dim + 1 :]])
    return torch.cat([tensor, filled], dim)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Gather, *locals_: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        ctx.plan, ctx.sizes = plan, [each.shape for each in locals_]
        ctx.set_materialize_grads(False)
        found = plan.gathered(locals_)
        pairs = zip(found, plan.shards, strict=True)
        ctx.mark_non_differentiable(*(each for each, shard in pairs if not shard.trained))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        if not ctx.plan.still_holds():
            ctx.plan.scatter_by_hooks(gradients)
            return (None,) * (len(gradients) + 1)
        return (None, *ctx.plan.reduced(gradients, ctx.sizes))


def left_to_eager(group: Any) -> str:
    """What of a group no `Gather` does; nothing: it does all."""
    kinds = sys.modules[_OF_GROUPS]
    if not isinstance(group.mesh_info, kinds.FSDPMeshInfo):
        return "whole parameters on each rank"
    if group._use_post_forward_mesh:
        return "parameters that are sharded otherwise after their forward"
    if type(group._all_gather_comm).__name__ != "DefaultAllGather":
        return "an all-gather of its own"
    if type(group._reduce_scatter_comm).__name__ != "DefaultReduceScatter":
        return "a reduce-scatter of its own"
    if any(
        hasattr(each._sharded_local_tensor, "fsdp_pre_all_gather") for each in group.fsdp_params
    ):
        return "a tensor that gathers itself"
    spread = [each.is_dtensor for each in group.fsdp_params if _spec_of_whole(each) is not None]
    if getattr(group.mesh_info, "is_spmd_mesh", False) or not all(spread):
        return "one mesh for all that is spread"
    if len({each.param_dtype or each.orig_dtype for each in group.fsdp_params}) > 1:
        return "parameters of several dtypes"
    if any(_hooked(each.sharded_param) for each in group.fsdp_params):
        return "hooks on its parameters' gradients"
    made = Gather(group)
    if made.size > 1 and made.reduction is None:
        return "a reduction with a factor"
    if made.replicas is not None and made.all_reduction is None:
        return "a reduction with a factor"
    return ""


def _hooked(parameter: torch.Tensor) -> bool:
    return bool(getattr(parameter, "_post_accumulate_grad_hooks", None))
