"""Tensor internals: storage, views, version counters.

In: tensors. Out: what torch keeps besides their data. Invariant: a count of writes that is raised
to find something out is set back.

Batched tensors of `vmap` and of `is_grads_batched=True`. In: tensors inside of a `vmap`. Out: the
same with the hidden dimension in front, and back again. Invariant: torch has two kinds of `vmap`,
that of `torch.func` and an older one; both are known here alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

#: the operator that makes of a collective's result a tensor that waits at its first use
WAITS_LATER = "_c10d_functional::_wrap_tensor_autograd"


def flattens(value: object) -> bool:
    """Whether a value is a tensor subclass that consists of other tensors."""
    return isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value)


def has_subclass(types: Sequence[type]) -> bool:
    """Whether an operator's tensors are in part of a subclass that consists of other tensors."""
    return any(hasattr(item, "__tensor_flatten__") for item in types)


def answers_natively(kind: type) -> bool:
    """Whether a tensor class has its `__torch_dispatch__` in torch itself, below every mode: a
    distributed tensor. The one that Python sees calls the operator again."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and kind is module.DTensor


def again_alike(made: torch.Tensor) -> Callable[[dict[str, Any]], torch.Tensor] | None:
    """What puts other parts together as these are; None where only the class knows how. It costs a
    tenth of what the class does, which examines a form that is known already."""
    if not answers_natively(type(made)):
        return None
    kind: Any = type(made)
    form, requires_grad = made._spec, made.requires_grad  # type: ignore[attr-defined]
    return lambda parts: kind(parts["_local_tensor"], form, requires_grad=requires_grad)


def in_other_fakes() -> bool:
    """Whether code has entered a mode of fake tensors of its own, as propagation of placements
    does: what it computes are shapes."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def storage_key(tensor: torch.Tensor) -> int:
    """A number equal for two tensors exactly if they share a storage (both being alive)."""
    return int(tensor.untyped_storage()._cdata)


def _lie_at(tensors: list[Any], addresses: list[int], places: list[int]) -> bool:
    return all(tensors[place].data_ptr() == addresses[place] for place in places)


lie_at: Callable[[list[Any], list[int], list[int]], bool] = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", _lie_at
)
"""Whether the tensors at these places lie at the addresses there: one call in builds for GPUs."""


def copy_all_(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy many tensors, one by one or in one launch."""
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    else:
        torch._foreach_copy_(targets, sources)


def is_conj_or_neg(tensor: torch.Tensor) -> bool:
    """Whether a tensor carries a lazy conjugation or negation."""
    return bool(tensor.is_conj() or tensor.is_neg())


def versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each tensor has been written to in place."""
    return [tensor._version for tensor in tensors]


def kept_with_versions(tensors: Sequence[torch.Tensor]) -> tuple[Sequence[torch.Tensor], list[int]]:
    """Tensors to be kept, and how often each was written to; copies of inference tensors, whose
    writes nobody counts."""
    try:
        return tensors, versions(tensors)
    except RuntimeError:
        own = [each.clone() if each.is_inference() else each for each in tensors]
        return own, versions(own)


def no_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that is a view of nothing: one made with grad disabled must not
    be written to afterwards."""
    return tensor.detach() if tensor._is_view() else tensor


def as_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a view of it, if it is none. A gradient that is one has memory that is not
    its alone, where the engine adds nothing in place; a result of an autograd function that is one
    may not be written to."""
    return tensor if tensor._is_view() else tensor[...]  # `view_as` may change strides of ones


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor of which this one is a view, or itself."""
    return tensor if tensor._base is None else tensor._base


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; inference tensors do not count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def write_counter(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without elements on which autograd counts the writes to this one."""
    counter = tensor.detach()
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    # it keeps its counter, and lets go of the memory
    counter.data = _nothing(tensor.dtype, tensor.device) if plain else tensor.new_empty(0)
    return counter


@functools.cache
def _nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    with torch.no_grad():
        return torch.empty(0, dtype=dtype, device=device)


def share_version_counter(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether autograd counts writes to these two together.

    Nothing in torch says so; one counter is raised and set back to find out.
    """
    if one.is_inference() or other.is_inference():
        return False
    before, raised = one._version, other._version
    torch.autograd.graph.increment_version(one)
    shared = other._version != raised
    torch._C._autograd._unsafe_set_version_counter((one,), (before,))
    return bool(shared)


def raise_version(tensor: torch.Tensor) -> None:
    """Count a write that autograd does not know of."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def raise_versions(tensors: Sequence[torch.Tensor]) -> None:
    """The same of several, in one call; inference tensors have no such count."""
    torch.autograd.graph.increment_version(tensors)


def _made_by(tensor: torch.Tensor, way: str) -> bool:
    """Whether a tensor is a view that torch says was made so."""
    if not tensor._is_view():
        return False
    autograd = torch._C._autograd  # type: ignore[attr-defined]
    return bool(autograd._get_creation_meta(tensor) == getattr(autograd.CreationMeta, way))


def made_without_grad(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view made with grad disabled."""
    return _made_by(tensor, "NO_GRAD_MODE")


def made_in_function(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view, or a view of one, that a user's autograd function has made."""
    return _made_by(tensor, "IN_CUSTOM_FUNCTION")


def one_of_several(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of several views that one operator gave, as by `split`."""
    return _made_by(tensor, "MULTI_OUTPUT_NODE")


def copied(value: torch.Tensor, stride: Sequence[int] | None = None) -> torch.Tensor:
    """A tensor of memory of its own with these strides, gaps included; by default its own."""
    stride = value.stride() if stride is None else stride
    if any(step == 0 and size > 1 for size, step in zip(value.shape, stride, strict=True)):
        return value.clone()
    made = torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device)
    return made.copy_(value)


def _scales_by_whole_exponents() -> bool:
    one = torch.ones(())
    try:
        torch.ldexp(one, one.bool())
    except NotImplementedError:
        return True
    return False


SCALES_BY_WHOLE_EXPONENTS = _scales_by_whole_exponents()
"""Whether `ldexp` of a float and whole exponents has a kernel of its own, which takes no bool."""


_MOST_LEVELS = 64  # as many as the older kind has
_OLDER = torch._C._dispatch_key_parse("VmapMode")
_OLDER_BATCHED = torch._C._dispatch_key_parse("Batched")

transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active


def shown(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that transforms of `torch.func` hide in this one."""
    native: Any = torch._C._functorch
    while native.is_functorch_wrapped_tensor(tensor):
        tensor = native.get_unwrapped(tensor)
    return tensor


def within_older_vmap() -> bool:
    """Whether this thread runs a program for a `vmap` of the older kind."""
    return torch._C._dispatch_tls_is_dispatch_key_included(_OLDER)


@dataclass(frozen=True)
class Batch:
    """One hidden dimension: of which `vmap`, and how long."""

    level: int
    size: int
    older: bool

    def shown(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor with this dimension in front; one that does not have it is expanded."""
        remove = torch._remove_batch_dim if self.older else torch._C._functorch._remove_batch_dim
        result: torch.Tensor = remove(tensor, self.level, self.size, 0)
        return result

    def hidden(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor whose first dimension is this one."""
        add = torch._add_batch_dim if self.older else torch._C._functorch._add_batch_dim
        result: torch.Tensor = add(tensor, 0, self.level)
        return result


def batch_of(tensors: Sequence[torch.Tensor]) -> Batch | None:
    """The innermost hidden dimension of these tensors, None where they have none."""
    native: Any = torch._C._functorch
    if batched := [item for item in tensors if native.is_batchedtensor(item)]:
        item = max(batched, key=native.maybe_get_level)
        level = native.maybe_get_level(item)
        return Batch(level, native._remove_batch_dim(item, level, 1, 0).shape[0], False)
    for item in filter(_is_older, tensors):
        # the tensor does not say its level, and a thread of the engine does not know it
        for level in range(_MOST_LEVELS, 0, -1):
            shown = torch._remove_batch_dim(item, level, 1, 0)
            if shown.shape[0] != 1 or not _is_older(shown):
                return Batch(level, shown.shape[0], True)
    return None


def _is_older(tensor: torch.Tensor) -> bool:
    return bool(torch._C._dispatch_keys(tensor).has(_OLDER_BATCHED))
