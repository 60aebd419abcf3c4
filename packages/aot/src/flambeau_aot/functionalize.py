"""Functional stand-ins for a program's tensors.

What comes in: fake values of the inputs. What goes out: functional tensors to run the program
on, and afterwards the pure values they stand for.
Invariant: a stand-in that requires grad is not a leaf: `leaf` is what to differentiate by, and
no operator is recorded between the two, so that writing to the stand-in is legal.

Batch normalisation updates its running statistics inside kernels whose schema does not say so.
`RewriteCalls` replaces those calls, above autograd, by ones that say it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import (
    current_value,
    functional_tensor,
    raise_version,
    storage_key,
    version,
)
from flambeau_aot.errors import Unsupported
from flambeau_aot.functional_form import call_without_writing, writing_operator


class _NotALeaf(torch.autograd.Function):
    """A second functional tensor over the same value, as the result of an operation."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        """Wrap the leaf's value again."""
        return functional_tensor(current_value(leaf))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        """Pass the cotangent on."""
        return grads[0]


@dataclass(frozen=True)
class StandIn:
    """One input of the program while it is traced.

    history: the wrapper's gradient function before the program ran. version: how often it was
    written to by then. memory: a second wrapper of the same memory that is never reshaped.
    is_leaf: whether the input is one.
    """

    value: torch.Tensor
    wrapper: torch.Tensor
    leaf: torch.Tensor | None
    history: Any
    storage: int
    version: int = 0
    memory: torch.Tensor | None = None
    is_leaf: bool = True


def stand_in(value: torch.Tensor, requires_grad: bool, is_leaf: bool = True) -> StandIn:
    """Make the stand-in of one input from its fake value."""
    if not requires_grad:
        wrapper = functional_tensor(value)
        return StandIn(value, wrapper, None, None, storage_key(wrapper), 0, wrapper.data)
    leaf = functional_tensor(value)
    leaf.requires_grad_(True)
    with torch.enable_grad():
        wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    history, memory = wrapper.grad_fn, wrapper.data
    return StandIn(value, wrapper, leaf, history, storage_key(wrapper), 0, memory, is_leaf)


def stand_in_over(leaf: torch.Tensor) -> StandIn:
    """The stand-in of an input that is itself a functional tensor of an enclosing program.

    Writing to the stand-in does not write to the enclosing program's value.
    """
    value = current_value(leaf)
    if not leaf.requires_grad:
        wrapper = functional_tensor(value)
        return StandIn(value, wrapper, None, None, storage_key(wrapper))
    wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    return StandIn(value, wrapper, leaf, wrapper.grad_fn, storage_key(wrapper))


def batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """`torch.batch_norm` through the operator whose schema marks the written statistics.

    Nothing is written outside training, and the call stays as it is.
    """
    if not training:
        return torch.batch_norm(
            x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
        )
    legit = torch.ops.aten._native_batch_norm_legit
    if running_mean is None or running_var is None:
        return cast(torch.Tensor, legit.no_stats(x, weight, bias, training, momentum, eps)[0])
    return cast(
        torch.Tensor,
        legit.default(x, weight, bias, running_mean, running_var, training, momentum, eps)[0],
    )


def instance_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """`torch.instance_norm` as a batch norm over batch times channels.

    Each instance's statistics update a copy of the running ones; their mean over the batch is
    written back, as ATen does.
    """
    batch, channels = x.shape[0], x.shape[1]

    def repeated(value: torch.Tensor | None) -> torch.Tensor | None:
        return None if value is None else value.repeat(batch)

    mean, var = repeated(running_mean), repeated(running_var)
    flat = x.contiguous().view(1, batch * channels, *x.shape[2:])
    out = batch_norm(
        flat,
        repeated(weight),
        repeated(bias),
        mean,
        var,
        use_input_stats,
        momentum,
        eps,
        cudnn_enabled,
    )
    if use_input_stats:
        with torch.no_grad():
            if running_mean is not None and mean is not None:
                running_mean.copy_(mean.view(batch, channels).mean(0))
            if running_var is not None and var is not None:
                running_var.copy_(var.view(batch, channels).mean(0))
    return out.view(x.shape)


def functional_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm`."""
    if training and input.numel() == input.shape[1]:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


def functional_instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.instance_norm`."""
    if use_input_stats and input[0, 0].numel() == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.shape}"
        )
    return instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps
    )


def conj(x: torch.Tensor) -> torch.Tensor:
    """`Tensor.conj`; a real tensor is its own conjugate, the very object."""
    return torch.conj(x) if x.is_complex() else x


REWRITES: dict[Any, Callable[..., Any]] = {
    functional.batch_norm: functional_batch_norm,
    functional.instance_norm: functional_instance_norm,
    torch.batch_norm: batch_norm,
    torch.ops.aten.batch_norm.default: batch_norm,
    torch.ops.aten.batch_norm: batch_norm,
    torch.instance_norm: instance_norm,
    torch.ops.aten.instance_norm.default: instance_norm,
    torch.ops.aten.instance_norm: instance_norm,
    torch.conj: conj,
    torch.Tensor.conj: conj,
}


# What a program may ask of an input while it is traced that its stand-in cannot answer.
_ASKED_OF_INPUTS: dict[Any, str] = {
    torch.Tensor.register_hook: "register_hook on an input; the hook would outlive this call",
    torch.Tensor.register_post_accumulate_grad_hook: "a hook on the gradient of an input",
    torch.Tensor.grad.__get__: "reading .grad of an input; pass the gradient as an argument",
    torch.Tensor.grad_fn.__get__: "reading .grad_fn of an input",
    torch.Tensor.data.__set__: "assigning .data of an input; use copy_ under torch.no_grad()",
}
_IS_LEAF = torch.Tensor.is_leaf.__get__  # type: ignore[attr-defined]


class RewriteCalls(TorchFunctionMode):
    """Applies `REWRITES` to every call the program makes.

    leaves: for each stand-in, whether the input it stands for is a leaf. What its stand-in would
    answer wrongly is answered for an input here, or refused.
    """

    def __init__(self, leaves: Mapping[int, bool] | None = None) -> None:
        super().__init__()
        self.leaves = leaves or {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        rewrite = REWRITES.get(func)
        if rewrite is not None:
            return rewrite(*args, **(kwargs or {}))
        if func is torch.Tensor.retain_grad:
            raise Unsupported("retain_grad inside the program; return the value instead")
        if args and id(args[0]) in self.leaves:
            if func in _ASKED_OF_INPUTS and args[0].requires_grad:
                raise Unsupported(_ASKED_OF_INPUTS[func])
            if func == _IS_LEAF:
                return self.leaves[id(args[0])]
        writing = writing_operator(func)
        if writing is not None:
            return call_without_writing(writing, args, kwargs or {})
        if getattr(func, "__name__", "") in WRITE_TO_LISTS:
            return _counting_writes(func, args, kwargs or {})
        target = args[0] if args else None
        if isinstance(target, torch.Tensor) and 0 in target.stride():
            return _not_writing(target, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _not_writing(
    target: torch.Tensor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call on an expanded tensor; functionalization would add up what is written to it."""
    before = version(target)
    result = func(*args, **kwargs)
    expanded = any(s == 0 and n > 1 for n, s in zip(target.shape, target.stride(), strict=True))
    if expanded and version(target) != before:
        raise Unsupported(
            "a write to an expanded tensor, whose elements share memory; write to a clone, or to "
            "the tensor that was expanded"
        )
    return result


WRITE_TO_LISTS = frozenset(
    name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")
)


def _counting_writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators that write to a list of tensors; in eager every write raises a version counter,
    above functionalization none does."""
    targets = args[0] if args else kwargs["self"]
    before = [version(tensor) for tensor in targets]
    result = func(*args, **kwargs)
    for tensor, count in zip(targets, before, strict=True):
        if version(tensor) == count:
            raise_version(tensor)
    return result
