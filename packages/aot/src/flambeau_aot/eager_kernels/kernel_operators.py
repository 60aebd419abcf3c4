"""Operators that call eager's own kernels, each with one for its derivative.

In: names, arguments, what runs, what its results are like. Out: operators of one namespace, which
graphs and saved programs call. Invariant: the derivative is an operator of the same arguments, and
of the cotangents, and needs nothing that the first has kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

NAMESPACE = "flambeau_aot"


@dataclass(frozen=True)
class KernelOperator:
    """run: on tensors; like: its results on fake ones."""

    run: Callable[..., Any]
    like: Callable[..., Any]


def define_pair(
    name: str, arguments: str, result: str, forward: KernelOperator, backward: KernelOperator
) -> tuple[Any, Any]:
    """Define the operator of a name and that of its derivative; result: their type, which the
    cotangents have too."""
    made = []
    for own, taken, operator in (
        (name, arguments, forward),
        (f"{name}_backward", f"{arguments}, {result} cotangents", backward),
    ):
        qualified = f"{NAMESPACE}::{own}"
        torch.library.define(qualified, f"({taken}) -> {result}")
        torch.library.impl(qualified, "CompositeExplicitAutograd", operator.run)
        torch.library.register_fake(qualified, operator.like)
        made.append(getattr(getattr(torch.ops, NAMESPACE), own))
    return made[0], made[1]
