"""The value of a node of a graph of primitives that is the same at every call.

In: a node. Out: its value, computed on the processor; None if anything but constants goes into it,
or if it is large. Invariant: nothing that draws, and nothing that has an effect, is computed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate

from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.passes.match import name_of

MOST_ELEMENTS = 1 << 24
"""Of any value on the way."""
SHAPES = "full iota broadcast_in_dim reshape permute slice cat cast where clone"
NUMBERS = "add sub mul div neg abs pow exp exp2 log sqrt minimum maximum floor_div remainder"
LOGIC = "eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor bitwise_not"
LOGIC_OF_ALL = "logical_and logical_or logical_xor logical_not"
KNOWN = frozenset(f"{SHAPES} {NUMBERS} {LOGIC} {LOGIC_OF_ALL}".split())
"""Primitives that are computed here."""


def evaluated(node: fx.Node) -> Tensor | None:
    """The value of a node."""
    order: list[fx.Node] = []
    waiting, seen = [node], {node}
    while waiting:
        one = waiting.pop()
        shape = getattr(value_of(one), "shape", None)
        if one.op != "call_function" or name_of(one) not in KNOWN or shape is None:
            return None
        if not all(isinstance(n, int) for n in shape) or math.prod(shape) > MOST_ELEMENTS:
            return None
        order.append(one)
        for part in one.all_input_nodes:
            if part not in seen:
                seen.add(part)
                waiting.append(part)
    values: dict[fx.Node, Tensor] = {}

    def given(part: Any) -> Any:
        if isinstance(part, torch.device):
            return torch.device("cpu")
        return values[part] if isinstance(part, fx.Node) else part

    with torch.no_grad():
        for one in sorted(order):  # a node is less than those behind it
            args, kwargs = map_aggregate((one.args, one.kwargs), given)
            made = one.target(*args, **kwargs)  # type: ignore[operator]
            if type(made) is not Tensor:  # a fake one has no value
                return None
            values[one] = made
    return values[node]
