"""Operators: what they are called, and what they say of themselves.

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
    """Whether an operator was made by `torch.library.custom_op`, as far as torch tells."""
    try:
        from torch._library.custom_ops import OPDEFS  # not a module of every torch
    except ImportError:
        return False
    return func._schema.name in OPDEFS


def is_operator_packet(target: object) -> bool:
    """Whether something is an operator whose overload is not chosen yet."""
    return isinstance(target, torch._ops.OpOverloadPacket)


def kernel_of(target: Any) -> Any:
    """What an operator overload calls: the overload itself adds a Python frame."""
    return target._op if isinstance(target, torch._ops.OpOverload) else target
