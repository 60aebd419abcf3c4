"""Running statistics of normalisation, as declared input mutations.

In: calls of torch's batch and instance normalisation. Out: the same values through operators whose
schema marks the statistics as written.
Invariant: nothing is written outside training.

Batch normalisation updates its running statistics inside kernels whose schema does not say so.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch.nn import functional

from flambeau_aot._torch_compat import trained_by_library
from flambeau_aot.intercept.registry import replaces


@replaces(torch.batch_norm, torch.ops.aten.batch_norm, torch.ops.aten.batch_norm.default)
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

    Nothing is written outside training or for a batch of nothing, and the call stays as it is.
    """
    if not training or any(isinstance(size, int) and size == 0 for size in x.shape):
        return torch.batch_norm(
            x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
        )
    if weight is None and bias is None:
        _refuse_mixed(x, running_mean, running_var)
    if x.device.type == "cpu" and not _in_a_format(x):
        # The kernel lays its result out so, which torch's description of it does not say.
        x = x.contiguous()
    if x.device.type == "cuda" and not _in_a_format(x):
        # cuDNN, which eager calls for some, is given a batch in a format, and gives one
        if cudnn_enabled and by_library(x, weight, bias, running_mean, running_var, eps):
            x = x.clone(memory_format=torch.contiguous_format)
    legit = torch.ops.aten._native_batch_norm_legit
    if running_mean is None or running_var is None:
        return cast(torch.Tensor, legit.no_stats(x, weight, bias, training, momentum, eps)[0])
    return cast(
        torch.Tensor,
        legit.default(x, weight, bias, running_mean, running_var, training, momentum, eps)[0],
    )


def _refuse_mixed(x: torch.Tensor, *statistics: torch.Tensor | None) -> None:
    """What the CPU's kernel says of dtypes, which has to be said where nobody reads the result."""
    if x.device.type != "cpu":
        return
    allowed = {x.dtype}
    if x.dtype in (torch.bfloat16, torch.float16):
        allowed.add(torch.float32)
    for given in statistics:
        if given is not None and given.dtype not in allowed:
            wanted = "all inputs must share same datatype."
            if given.dtype != torch.float32:
                wanted = "expect parameter to have scalar type of Float"
            raise RuntimeError(f"mixed dtype (CPU): {wanted}")


def by_library(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    eps: float,
) -> bool:
    """Whether eager hands the training of such a batch to a library of a GPU."""
    if weight is None or bias is None:
        return False
    given = (weight, bias, mean if mean is not None else weight)
    return trained_by_library(x, *given, variance if variance is not None else weight, eps)


def _in_a_format(x: torch.Tensor) -> bool:
    """Whether the elements of a batch lie in one of the orders that kernels keep."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    own = formats.get(x.dim())
    return x.is_contiguous() or (own is not None and x.is_contiguous(memory_format=own))


@replaces(torch.instance_norm, torch.ops.aten.instance_norm, torch.ops.aten.instance_norm.default)
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


@replaces(functional.batch_norm)
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
    # of each channel, whether there are channels or not: a vector has a channel an element
    if training and math.prod((input.shape[0], *input.shape[2:])) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@replaces(functional.instance_norm)
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
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.shape}"
        )
    return instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps
    )
