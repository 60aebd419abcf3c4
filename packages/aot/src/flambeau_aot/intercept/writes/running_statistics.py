"""Running statistics of normalisation, as declared input mutations.

In: calls of torch's batch and instance normalisation. Out: the same values through operators whose
schema marks the statistics as written.
Invariant: nothing is written outside training.

Batch normalisation updates its running statistics inside kernels whose schema does not say so.

Masked writes of values that require grad. In: calls that put values where a mask is true, or one
value at some indices. Out: the same call with a derivative of known sizes, None where the call has
one. Invariant: the forward pass is the library's, with its refusals; how many elements of the mask
are true is read off the values, which have a row for each of them, and never of the mask. Eager's
derivative for the values is the gradient's elements under the mask, or at the indices that differ,
whose number is not known while a program is traced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import signature
from typing import Any, NamedTuple, cast

import torch
from torch.nn import functional

from flambeau_aot._torch_compat import storage_key, trained_by_library
from flambeau_aot.intercept.registry import Call, Interception, forms, intercept, replaces
from flambeau_aot.intercept.writes.inplace import write
from flambeau_aot.refusals import refusal


class Normalization(NamedTuple):
    """The arguments of `torch.batch_norm` and `torch.instance_norm`, in order."""

    x: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    running_mean: torch.Tensor | None
    running_var: torch.Tensor | None
    training: bool
    momentum: float
    eps: float
    cudnn_enabled: bool = True

    def by_library(self) -> bool:
        """Whether eager hands the training of such a batch to a library of a GPU."""
        if self.weight is None or self.bias is None:
            return False
        mean = self.weight if self.running_mean is None else self.running_mean
        variance = self.weight if self.running_var is None else self.running_var
        return trained_by_library(self.x, self.weight, self.bias, mean, variance, self.eps)


@replaces(torch.batch_norm, torch.ops.aten.batch_norm, torch.ops.aten.batch_norm.default)
def batch_norm(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.batch_norm` through the operator whose schema marks the written statistics.

    Nothing is written outside training or for a batch of nothing, and the call stays as it is.
    """
    norm = Normalization(*args, **kwargs)
    x, weight, bias, running_mean, running_var, *numbers, cudnn_enabled = norm
    if not norm.training or any(isinstance(size, int) and size == 0 for size in x.shape):
        return torch.batch_norm(*norm)
    if weight is None and bias is None:
        _refuse_mixed(x, running_mean, running_var)
    if x.device.type == "cpu" and not _in_a_format(x):
        # The kernel lays its result out so, which torch's description of it does not say.
        x = x.contiguous()
    if x.device.type == "cuda" and not _in_a_format(x):
        # cuDNN, which eager calls for some, is given a batch in a format, and gives one
        if cudnn_enabled and norm.by_library():
            x = x.clone(memory_format=torch.contiguous_format)
    legit = torch.ops.aten._native_batch_norm_legit
    if running_mean is None or running_var is None:
        return cast(torch.Tensor, legit.no_stats(x, weight, bias, *numbers)[0])
    _refuse_shared(running_mean, running_var, weight, bias, x)
    given = (x, weight, bias, running_mean, running_var, *numbers)
    return cast(torch.Tensor, legit.default(*given)[0])


def _refuse_shared(mean: torch.Tensor, variance: torch.Tensor, *read: torch.Tensor | None) -> None:
    """Operators write to their arguments after all is read; kernels write the statistics first."""
    mine, other = storage_key(mean), storage_key(variance)
    if mine == other or {mine, other} & {storage_key(x) for x in read if x is not None}:
        raise refusal("AO0165", func="batch_norm")


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


def _in_a_format(x: torch.Tensor) -> bool:
    """Whether the elements of a batch lie in one of the orders that kernels keep."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    own = formats.get(x.dim())
    return x.is_contiguous() or (own is not None and x.is_contiguous(memory_format=own))


@replaces(torch.instance_norm, torch.ops.aten.instance_norm, torch.ops.aten.instance_norm.default)
def instance_norm(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.instance_norm` as a batch norm over batch times channels.

    Each instance's statistics update a copy of the running ones; their mean over the batch is
    written back, as ATen does.
    """
    norm = Normalization(*args, **kwargs)
    batch, channels = norm.x.shape[:2]
    by_channel = norm[1:5]
    repeated = [None if value is None else value.repeat(batch) for value in by_channel]
    flat = norm.x.contiguous().view(1, batch * channels, *norm.x.shape[2:])
    out = batch_norm(flat, *repeated, *norm[5:])
    if norm.training:
        with torch.no_grad():
            for running, own in zip(by_channel[2:], repeated[2:], strict=True):
                if running is not None and own is not None:
                    running.copy_(own.view(batch, channels).mean(0))
    return out.view(norm.x.shape)


@replaces(functional.batch_norm)
def functional_batch_norm(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.nn.functional.batch_norm`."""
    norm = _of_functional(functional.batch_norm, args, kwargs)
    # of each channel, whether there are channels or not: a vector has a channel an element
    if norm.training and math.prod((norm.x.shape[0], *norm.x.shape[2:])) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {norm.x.shape}"
        )
    return batch_norm(*norm)


@replaces(functional.instance_norm)
def functional_instance_norm(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.nn.functional.instance_norm`."""
    norm = _of_functional(functional.instance_norm, args, kwargs)
    if norm.training and math.prod(norm.x.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {norm.x.shape}"
        )
    return instance_norm(*norm)


def _of_functional(function: Any, args: Any, kwargs: Any) -> Normalization:
    """What the functional form is given, of which the order of arguments is another one."""
    given = signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    x, mean, variance, weight, bias, *rest = given.args
    return Normalization(x, weight, bias, mean, variance, *rest)


_SETS = torch.Tensor.__setitem__
_PUTS_IN_PLACE = frozenset(
    (torch.Tensor.index_put_, torch.index_put_, torch.ops.aten.index_put_.default)
)
_PUTS = (
    frozenset((torch.Tensor.index_put, torch.index_put, torch.ops.aten.index_put.default))
    | _PUTS_IN_PLACE
)


class _MaskedPut(torch.autograd.Function):
    """`x.index_put([*[None] * dim, mask], values, accumulate)`."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, dim: int, add: bool
    ) -> torch.Tensor:
        """Run the library's."""
        ctx.save_for_backward(mask)
        ctx.shape, ctx.dim, ctx.add = values.shape, dim, add
        indices = [*[None] * dim, mask]
        return cast(torch.Tensor, torch.ops.aten.index_put.default(x, indices, values, add))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """What is not under the mask goes to the tensor, the rest to the values."""
        (grad,), (mask,) = grads, ctx.saved_tensors
        dim, shape = ctx.dim, ctx.shape
        behind = grad.dim() - dim - mask.dim()
        cover = mask.reshape([*mask.shape, *[1] * behind])
        own = grad if ctx.add else grad.masked_fill(cover, 0)
        row = len(shape) - behind - 1
        if row < 0 or shape[row] == 1:
            under = torch.where(cover, grad, 0)
            rows = under.flatten(dim, dim + mask.dim() - 1).sum(dim, keepdim=True)
        else:
            at = torch.nonzero_static(mask.reshape(-1), size=shape[row])[:, 0]
            rows = grad.flatten(dim, dim + mask.dim() - 1).index_select(dim, at)
        if row < 0:
            rows = rows.squeeze(dim)
        return own, rows.sum_to_size(shape), None, None, None


@intercept(_SETS, *_PUTS)
def masked_put(trace: Interception, call: Call) -> Any:
    """A write under a mask, of values that require grad."""
    put = _masked_put(call.func, call.args, call.kwargs)
    if put is None:
        return NotImplemented
    if call.func is _SETS or call.func in _PUTS_IN_PLACE:
        return write(trace, Call(torch.Tensor.copy_, (call.target, put), {}))
    return put


@intercept(*forms("index_fill", "index_fill_"))
def index_fill(trace: Interception, call: Call) -> Any:
    """The same of one value at some indices of a dimension. Those that count from the end have a
    gradient here; eager's derivative, which looks them up, raises."""
    given = dict(zip(("self", "dim", "index", "value"), call.args)) | call.kwargs
    x, dim, index, value = (given.get(name) for name in ("self", "dim", "index", "value"))
    if not isinstance(x, torch.Tensor) or not isinstance(value, torch.Tensor):
        return NotImplemented
    if not isinstance(index, torch.Tensor) or type(dim) is not int:
        return NotImplemented
    if not torch.is_grad_enabled() or not value.requires_grad:
        return NotImplemented
    if value.dim() or not x.dim() or storage_key(value) == storage_key(x):
        return NotImplemented  # eager refuses a value of several elements
    at = dim % x.dim() if -x.dim() <= dim < x.dim() else dim
    mask = torch.zeros(x.shape[at], dtype=torch.bool, device=x.device)
    mask = mask.index_fill(0, index, True)
    put = _MaskedPut.apply(x, value.to(x), mask, at, False)  # type: ignore[no-untyped-call]
    if call.name.startswith("index_fill_"):
        return write(trace, Call(torch.Tensor.copy_, (x, put), {}))
    return put


def _masked_put(func: Any, args: Sequence[Any], kwargs: Any) -> torch.Tensor | None:
    if not torch.is_grad_enabled() or len(args) < 3:
        return None
    x, index, values = args[:3]
    add = bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    if not isinstance(values, torch.Tensor) or not values.requires_grad:
        return None
    parts = list(index) if isinstance(index, (tuple, list)) else [index]
    dim = len(parts) - 1
    # What stands for a whole dimension: None makes a new one in `x[None]`.
    whole = slice(None) if func is _SETS else None
    if any(isinstance(part, torch.Tensor) or part != whole for part in parts[:-1]):
        return None
    mask = parts[-1]
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or not mask.dim():
        return None
    if tuple(mask.shape) != tuple(x.shape[dim : dim + mask.dim()]):
        return None  # eager refuses it
    if func is _SETS:
        values = values.to(x.dtype)
        while values.dim() and values.shape[0] == 1:
            values = values[0]
    if storage_key(values) == storage_key(x) or values.device != x.device:
        return None
    return cast(torch.Tensor, _MaskedPut.apply(x, values, mask, dim, add))  # type: ignore[no-untyped-call]
