"""Masked writes of values that require grad.

In: calls that put values where a mask is true, or one value at some indices. Out: the same call
with a derivative of known sizes, None where the call has one.
Invariant: the forward pass is the library's, with its refusals; how many elements of the mask are
true is read off the values, which have a row for each of them, and never of the mask.

Eager's derivative for the values is the gradient's elements under the mask, or at the indices
that differ, whose number is not known while a program is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from flambeau_aot._torch_compat import storage_key
from flambeau_aot.intercept.registry import Call, Interception, forms, intercept
from flambeau_aot.intercept.writes.inplace import write

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
