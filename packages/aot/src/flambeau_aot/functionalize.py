"""Functional stand-ins for a program's tensors.

What comes in: fake values of the inputs. What goes out: functional tensors to run the program
on, and afterwards the pure values they stand for.
Invariant: a stand-in that requires grad is not a leaf: `leaf` is what to differentiate by, and
no operator is recorded between the two, so that writing to the stand-in is legal.

Batch normalisation updates its running statistics inside kernels whose schema does not say so.
`RewriteCalls` replaces those calls, above autograd, by ones that say it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import current_value, functional_tensor, storage_key


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
    """

    value: torch.Tensor
    wrapper: torch.Tensor
    leaf: torch.Tensor | None
    history: Any
    storage: int
    version: int = 0
    memory: torch.Tensor | None = None


def stand_in(value: torch.Tensor, requires_grad: bool) -> StandIn:
    """Make the stand-in of one input from its fake value."""
    if not requires_grad:
        wrapper = functional_tensor(value)
        return StandIn(value, wrapper, None, None, storage_key(wrapper), 0, wrapper.data)
    leaf = functional_tensor(value)
    leaf.requires_grad_(True)
    with torch.enable_grad():
        wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    history, memory = wrapper.grad_fn, wrapper.data
    return StandIn(value, wrapper, leaf, history, storage_key(wrapper), 0, memory)


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


REWRITES: dict[Any, Callable[..., Any]] = {
    functional.batch_norm: functional_batch_norm,
    functional.instance_norm: functional_instance_norm,
    torch.batch_norm: batch_norm,
    torch.ops.aten.batch_norm.default: batch_norm,
    torch.ops.aten.batch_norm: batch_norm,
    torch.instance_norm: instance_norm,
    torch.ops.aten.instance_norm.default: instance_norm,
    torch.ops.aten.instance_norm: instance_norm,
}


class RewriteCalls(TorchFunctionMode):
    """Applies `REWRITES` to every call the program makes."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return REWRITES.get(func, func)(*args, **(kwargs or {}))
