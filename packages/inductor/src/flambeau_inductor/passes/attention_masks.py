"""What is added to the scores of attention, or put in their place, as a bias.

In: nodes of a graph of primitives. Out: what a bias says, or what hides scores and where.
Invariant: what is not shown to be finite, or to leave every row a key, is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import fx

from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.passes.constant_values import evaluated
from flambeau_inductor.passes.match import name_of
from flambeau_inductor.pre_grad.constant_masks import hides_later

LOWEST = -1e30
"""Added to a score this gives itself, as it does in the place of it."""


@dataclass(slots=True)
class Hidden:
    """`low` is in the place of scores where the mask holds, or does not if it is `seen`."""

    mask: fx.Node
    low: float
    seen: bool


def chosen(node: fx.Node, shape: tuple[int, ...]) -> tuple[fx.Node, Hidden] | None:
    """The scores of which some are replaced by a low number, and where."""
    mask, first, second = node.args[:3]
    nodes = [each for each in (mask, first, second) if isinstance(each, fx.Node)]
    if len(nodes) != 3 or any(tuple(value_of(each).shape) != shape for each in nodes):
        return None
    mask, first, second = nodes
    for low, scores, seen in ((first, second, False), (second, first, True)):
        number = constant_of(_repeated(low))
        if number == -math.inf and _every_row_sees(mask, seen):
            return scores, Hidden(mask, number, seen)
        if number is not None and math.isfinite(number) and number <= LOWEST:
            return scores, Hidden(mask, number, seen)
    return None


def _every_row_sees(mask: fx.Node, seen: bool) -> bool:
    """Whether a mask is of constants that leave every row of scores a key."""
    found = _by_rows(mask)
    return found is not None and bool((found == seen).any(-1).all())


def is_causal(hidden: Hidden) -> bool:
    """Whether it hides exactly what comes later."""
    rows, keys = value_of(hidden.mask).shape[-2:]
    found = _by_rows(hidden.mask) if rows == keys else None
    return found is not None and hides_later(found != hidden.seen, rows)


def _by_rows(node: fx.Node) -> torch.Tensor | None:
    """The value of what is repeated over heads (and rows), whose last dimension is the keys; None
    if it is not made of constants."""
    keys = value_of(node).shape[-1]
    source = node
    while name_of(source) == "broadcast_in_dim" and isinstance(source.args[0], fx.Node):
        inner = source.args[0]
        dims, rank = list(source.args[2]), len(value_of(source).shape)  # type: ignore[arg-type]
        if not dims or dims[-1] != rank - 1 or value_of(inner).shape[-1] != keys:
            break
        source = inner
    return evaluated(source)


def _repeated(node: fx.Node) -> fx.Node:
    """The number that a node repeats, or the node."""
    while name_of(node) in ("broadcast_in_dim", "reshape") and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def finite_rows(bias: fx.Node) -> bool:
    """Whether a bias is of constants that hide no row and are else numbers."""
    found = _by_rows(bias)
    if found is None or not found.is_floating_point():
        return False
    numbers = found.isfinite()
    return bool((numbers | (found == -math.inf)).all() and numbers.any(-1).all())


FINITE_OF_FINITE = frozenset(
    {"broadcast_in_dim", "reshape", "permute", "slice", "cat", "clone", "neg", "abs", "where"}
)
"""Of finite operands these give finite results (a condition counts as one)."""


def finite(bias: fx.Node) -> bool:
    """Whether the graph shows that no element of a bias is infinite or NaN."""
    name = name_of(bias)
    value = value_of(bias)
    if not value.dtype.is_floating_point or _small(bias):
        return True
    if name == "full":
        number = constant_of(bias)
        return number is not None and abs(number) <= torch.finfo(value.dtype).max
    if name == "iota":
        return True
    operands = list(bias.all_input_nodes)
    if name == "cast":
        source = value_of(operands[0]).dtype
        fits = not source.is_floating_point or (
            torch.finfo(source).max <= torch.finfo(value.dtype).max
        )
        return (fits or _small(operands[0])) and finite(operands[0])
    if name == "mul":
        return any(_small(n) for n in operands) and all(map(finite, operands))
    return name in FINITE_OF_FINITE and all(map(finite, operands))


def _small(node: fx.Node) -> bool:
    """Whether every element is in [-1, 1]: a truth value, or one subtracted from 1."""
    name = name_of(node)
    if name == "cast" and isinstance(node.args[0], fx.Node):
        return value_of(node.args[0]).dtype == torch.bool or _small(node.args[0])
    if name == "full":
        number = constant_of(node)
        return number is not None and abs(number) <= 1
    if name in ("broadcast_in_dim", "reshape", "permute", "slice"):
        return isinstance(node.args[0], fx.Node) and _small(node.args[0])
    if name == "sub" and constant_of(node.args[0]) == 1:
        other = node.args[1]
        return isinstance(other, fx.Node) and name_of(other) == "cast" and _small(other)
    return False


def constant_of(node: object) -> float | None:
    if not isinstance(node, fx.Node) or name_of(node) != "full":
        return None
    value = node.args[1]
    return float(value) if isinstance(value, int | float) else None
