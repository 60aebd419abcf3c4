"""Masks that a graph itself shows to be causal.

In: a node of a captured graph of torch functions. Out: whether it is true (or -inf) exactly above
the diagonal. Invariant: only what is made in the graph out of constants counts; a mask that comes
from outside may hold anything.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

Target = str | Callable[..., Any]
VIEWS: frozenset[Target] = frozenset(
    {"unsqueeze", "view", "reshape", "expand", "contiguous", torch.unsqueeze, torch.reshape}
)
CASTS: frozenset[Target] = frozenset({"to", "bool", "float", "type_as", "type"})
ZEROS: frozenset[Target] = frozenset({torch.zeros, torch.zeros_like, "new_zeros"})
ONES: frozenset[Target] = frozenset({torch.ones, torch.ones_like, "new_ones"})
FULL: frozenset[Target] = frozenset({torch.full, torch.full_like, "new_full"})
UPPER: frozenset[Target] = frozenset({"triu", torch.triu})
LOWER: frozenset[Target] = frozenset({"tril", torch.tril})
NOT: frozenset[Target] = frozenset(
    {operator.invert, torch.logical_not, torch.bitwise_not, "logical_not", "bitwise_not"}
)
EQUAL: frozenset[Target] = frozenset({operator.eq, torch.eq, "eq"})
ABOVE: frozenset[Target] = frozenset({operator.ne, torch.ne, "ne", operator.gt, torch.gt, "gt"})
FILL: frozenset[Target] = frozenset({"masked_fill", torch.masked_fill})


def calls(node: Any, targets: frozenset[Target]) -> bool:
    """Whether a node calls one of these functions or methods."""
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return False
    return node.target in targets


def above_diagonal(node: Any, size: int) -> bool:
    """Whether a truth value holds of column j in row i, of `size` each, exactly where j > i."""
    return _square(node, size) and _nonzero_above(_plain(node), size)


def infinite_above_diagonal(node: Any, size: int) -> bool:
    """Whether a summand of `size` rows and columns is -inf above the diagonal, else zero."""
    if not _square(node, size):
        return False
    node = _plain(node)
    if calls(node, UPPER):
        return _upper(node, size) == -math.inf
    if calls(node, FILL) and len(node.args) == 3 and not node.kwargs:
        filled = node.args[2] == -math.inf and _constant(_plain(node.args[0])) == 0
        return filled and above_diagonal(node.args[1], size)
    return False


def _nonzero_above(node: Any, size: int) -> bool:
    if calls(node, UPPER):
        constant = _upper(node, size)
        return constant is not None and constant > 0
    if calls(node, NOT) and len(node.args) == 1:
        value = node.meta.get("val")
        return isinstance(value, Tensor) and value.dtype == torch.bool and _below(node, size)
    if calls(node, EQUAL) and len(node.args) == 2:
        return bool(node.args[1] == 0) and _below(node, size)
    if calls(node, ABOVE) and len(node.args) == 2:
        return bool(node.args[1] == 0) and _nonzero_above(_plain(node.args[0]), size)
    return False


def _upper(node: fx.Node, size: int) -> float | None:
    """The number that a matrix is above the diagonal, where it is zero elsewhere."""
    if not _square(node, size) or _diagonal(node) != 1:
        return None
    return _constant(_plain(node.args[0]))


def _below(of: fx.Node, size: int) -> bool:
    """Whether the operand of a node is positive exactly on the diagonal and below."""
    node = _plain(of.args[0])
    if not calls(node, LOWER) or not _square(node, size) or _diagonal(node) != 0:
        return False
    constant = _constant(_plain(node.args[0]))
    return constant is not None and constant > 0


def _plain(node: Any) -> Any:
    """What `node` shows in other shapes or another dtype."""
    while calls(node, VIEWS) or calls(node, CASTS) or _adds_dimensions(node):
        node = node.args[0]
    return node


def _adds_dimensions(node: Any) -> bool:
    """Whether it is `x[None, ...]`."""
    if not calls(node, frozenset({operator.getitem})):
        return False
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return all(part is None or part is ... for part in index)


def _diagonal(node: fx.Node) -> Any:
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("diagonal", 0)


def _constant(node: Any) -> float | None:
    """The number that all elements are."""
    if calls(node, ZEROS):
        return 0.0
    if calls(node, ONES):
        return 1.0
    if calls(node, FULL):
        position = 2 if node.op == "call_method" else 1
        value = node.kwargs.get("fill_value", (*node.args, None, None)[position])
        return float(value) if isinstance(value, int | float) else None
    return None


def _square(node: Any, size: int) -> bool:
    """Whether it is one square matrix of `size`, maybe with dimensions of one before it."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, Tensor) or value.dim() < 2:
        return False
    *before, rows, columns = value.shape
    return rows == columns == size and all(n == 1 for n in before)
