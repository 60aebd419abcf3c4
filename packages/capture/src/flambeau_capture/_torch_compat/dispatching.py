"""Dispatch modes below autograd, and tensor subclasses: which of them would see a call.

In: a function to call with each operator; a class of tensors. Out: a mode of torch's dispatcher.
Invariant: fake results are as kernels make them. Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from flambeau_capture._torch_compat.fakes import as_made
from flambeau_capture._torch_compat.sizes.results_by_shape import BY_SHAPE, result_by_shape

See = Callable[[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]], None]


class Watching(TorchDispatchMode):
    """Publishes each operator before it runs."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # which would be loaded for it
        return False

    def __init__(self, see: See) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        known = isinstance(func, torch._ops.OpOverload)
        if known:
            self._see(func, args, given)
        result = func(*args, **given)
        return self.made((args, given), as_made(func, args, result) if known else result)

    def made(self, given: Any, result: Any) -> Any:
        """The result of an operator."""
        return result


class Following(Watching):
    """Publishes each operator, too, and keeps what is computed from given tensors."""

    def __init__(self, see: See, start: Iterable[torch.Tensor]) -> None:
        super().__init__(see)
        self._computed = {id(tensor): tensor for tensor in start}

    def made(self, given: Any, result: Any) -> Any:
        if any(self.computed(leaf) for leaf in tree_leaves(given)):
            self._computed.update((id(made), made) for made in tree_leaves(result))
        return result

    def computed(self, value: Any) -> bool:
        """Whether a value is one of the given tensors, or computed from one."""
        return self._computed.get(id(value), self) is value


def default_torch_function() -> Any:
    """`Tensor.__torch_function__`, as the function that its class method is made of."""
    found: Any = torch.Tensor.__dict__["__torch_function__"]
    return found.__func__


disable_torch_function_subclass: Any = torch._C.DisableTorchFunctionSubclass
disabled_torch_function: Any = torch._C._disabled_torch_function_impl


def ignores_torch_function(kind: type) -> bool:
    """Whether torch works on instances of a tensor class as on plain tensors."""
    return getattr(kind, "__torch_function__", None) is disabled_torch_function


def perform(target: Any, args: Any, kwargs: Any) -> Any:
    """What a call in a graph does: `target` is a function, or the name of a method of the first
    argument."""
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    by_shape = result_by_shape(target, args, kwargs) if target in BY_SHAPE else None
    return target(*args, **kwargs) if by_shape is None else by_shape


@functools.cache
def without_torch_function(target: Any) -> Any:
    """The same as a function, which no `__torch_function__` answers."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with disable_torch_function_subclass():
            return perform(target, args, kwargs)

    call.__name__ = target if isinstance(target, str) else getattr(target, "__name__", "call")
    call.performs = target  # type: ignore[attr-defined] # what a key of the graph says of it
    return call


def has_own_dispatch(kind: type) -> bool:
    """Whether a tensor class answers operators below autograd."""
    own = getattr(kind, "__torch_dispatch__", None)
    return getattr(own, "__func__", own) is not getattr(
        torch.Tensor.__torch_dispatch__, "__func__", torch.Tensor.__torch_dispatch__
    )


def flattens(value: object) -> bool:
    """Whether a value is a tensor subclass that consists of other tensors."""
    return issubclass(type(value), torch.Tensor) and is_traceable_wrapper_subclass(value)


def flattened(value: Any) -> tuple[tuple[str, ...], Any, dict[str, Any]]:
    """What a wrapper subclass flattens to: the names of the tensors in it, its context, and what it
    names besides, by name: objects that are as they are, such as a mesh of devices."""
    names, context = value.__tensor_flatten__()
    parts = {name: getattr(value, name) for name in names}
    others = {n: part for n, part in parts.items() if not isinstance(part, torch.Tensor)}
    return tuple(name for name in names if name not in others), context, others


def has_form(fake: torch.Tensor) -> bool:
    """Whether `like_fake` can make a tensor of the same form: all of its numbers are known."""
    if flattens(fake):
        return all(has_form(getattr(fake, name)) for name in flattened(fake)[0])
    return fake.layout is torch.strided and all(
        type(size) is int for size in (*fake.shape, *fake.stride())
    )


def like_fake(fake: Any) -> torch.Tensor:
    """A tensor of the form of a fake, with any values."""
    if not flattens(fake):
        return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    names, context, others = flattened(fake)
    inner = {name: like_fake(getattr(fake, name)) for name in names} | others
    made: torch.Tensor = type(fake).__tensor_unflatten__(inner, context, fake.shape, fake.stride())
    return made


def is_function_of_torch(value: object) -> bool:
    """Whether a value is one of the functions of tensors in `torch` that C++ defines."""
    name = getattr(value, "__name__", "")
    return isinstance(name, str) and getattr(torch._C._VariableFunctions, name, None) is value


def can_flatten(kind: type) -> bool:
    """Whether the instances of a tensor class flatten."""
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The same data as a tensor without a class of its own; gradients flow through."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


@functools.cache
def results_left_plain() -> frozenset[Any]:
    """What `Tensor.__torch_function__` calls without making the result one of the subclass."""
    return frozenset(torch.overrides.get_default_nowrap_functions())


make_subclass: Any = torch.Tensor._make_subclass
