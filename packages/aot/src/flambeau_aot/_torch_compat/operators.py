"""Operator names, schemas and tags.

In: what a node calls, or a name. Out: facts about it, or the operator. Invariant: nothing is run.
"""

from __future__ import annotations

from typing import Any

import torch

DEVICE_QUERY = torch.ops.prim.device.default


def decomposes_itself(func: Any) -> bool:
    """Whether an operator is composite: defined by other operators at every dispatch key."""
    return bool(func._can_decompose())


def is_view_op(func: Any) -> bool:
    """Whether an operator's results alias its first argument without writing to it."""
    return isinstance(func, torch._ops.OpOverload) and bool(func.is_view)


def is_aten(func: Any) -> bool:
    """Whether a callable is torch's own: no operator but those of ATen, or a function of torch."""
    if isinstance(func, torch._ops.OpOverloadPacket):
        return str(func._qualified_op_name).startswith("aten::")
    return not isinstance(func, torch._ops.OpOverload) or func.namespace == "aten"


def communicates(target: object) -> bool:
    """Whether an operator is a collective, or waits for one: other processes take part in it."""
    own = isinstance(target, torch._ops.OpOverload)
    return own and target.namespace.startswith("_c10d_functional")  # type: ignore[attr-defined]


def is_operator(target: object) -> bool:
    """Whether a node's target is an operator overload."""
    return isinstance(target, torch._ops.OpOverload)


def operator_named(name: str) -> Any:
    """The operator overload whose text is `aten.view.default`. Raises LookupError."""
    try:
        namespace, operator, overload = name.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    except (ValueError, AttributeError) as error:
        raise LookupError(f"there is no operator {name}") from error


def is_higher_order(target: object) -> bool:
    """Whether something is an operator that takes functions, as `cond` does."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def is_custom_op(func: Any) -> bool:
    """Whether an operator was made by `torch.library.custom_op`, as far as torch says."""
    return _definition(func) is not None


def lacks_formula(func: Any) -> bool:
    """Whether it was, and no derivative was registered: a backward pass through it raises."""
    made = _definition(func)
    return made is not None and made._backward_fn is None


def _definition(func: Any) -> Any:
    try:
        from torch._library.custom_ops import OPDEFS  # not a module of every torch
    except ImportError:
        return None
    return OPDEFS.get(func._schema.name)


def is_operator_packet(target: object) -> bool:
    """Whether something is an operator whose overload is not chosen yet."""
    return isinstance(target, torch._ops.OpOverloadPacket)


def kernel_of(target: Any) -> Any:
    """What an operator overload calls: the overload itself adds a Python frame."""
    if target in _BY_GRAD_MODE:
        return _BY_GRAD_MODE[target]
    return target._op if isinstance(target, torch._ops.OpOverload) else target


def _recurrent(*args: Any) -> tuple[torch.Tensor, ...]:
    """oneDNN's recurrent layer. Its kernel makes what its backward needs, of a size that no shape
    rule knows, where grad is enabled, and no tensor where it is not: here always an empty one."""
    *results, _ = torch.ops.aten.mkldnn_rnn_layer.default(*args)
    return (*results, results[0].new_empty(0, dtype=torch.uint8))


def _recurrent_backward(*args: Any) -> Any:
    """Its derivative; what it needs is made here."""
    inputs, (reverse, mode, size, layers, biases, train), (both_ways, sizes, batch_first) = (
        [x.detach() for x in args[:7]],
        args[13:19],
        args[19:22],
    )
    with torch.enable_grad():
        *_, workspace = torch.ops.aten.mkldnn_rnn_layer.default(
            *inputs, reverse, sizes, mode, size, layers, biases, both_ways, batch_first, train
        )
    return torch.ops.aten.mkldnn_rnn_layer_backward.default(*args[:22], workspace)


_BY_GRAD_MODE: dict[Any, Any] = {
    torch.ops.aten.mkldnn_rnn_layer.default: _recurrent,
    torch.ops.aten.mkldnn_rnn_layer_backward.default: _recurrent_backward,
}
"""Operators whose kernels ask whether grad is enabled, as it is not where graphs run."""


def trained_by_library(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    eps: float,
) -> bool:
    """Whether torch hands batch normalisation in training to cuDNN or MIOpen; by metadata alone.

    Tried on torch 2.11 and 2.13.
    """
    chosen = torch._C._select_batch_norm_backend(x, weight, bias, mean, variance, True, eps)
    return bool(chosen.name != "Native")
