"""Attention that a program in training writes out, as the library's fused kernels.

In: a captured graph of torch functions, before autograd is traced. Out: the same graph, in which
`softmax(q @ k^T * scale) @ v` is a function of ours. Invariant: only where nobody else needs the
scores or the weights, without dropout, for operands that the kernels take, and
where one of them needs a gradient (graphs without gradients are rewritten as primitives, where the
graph itself can show more: `passes.attention`).

Traced as it stands, such a program keeps the weights of every pair of positions for its backward;
the fused kernels keep a number a row. Of masks only the causal one is taken, where the graph shows
that it is (`passes.causal`): a row that sees nothing is NaN by the formula and zero by the kernels.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from flambeau_inductor.passes.causal import (
    FILL,
    Target,
    above_diagonal,
    calls,
    infinite_above_diagonal,
)
from flambeau_inductor.passes.unused import erase_unused
from flambeau_inductor.runtime.fused_attention import DTYPES, attended, takes

LEAST_LENGTH = 16
"""Fewer keys than this are not worth the kernel's start."""

PRODUCTS: frozenset[Target] = frozenset(
    {torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm", "__matmul__"}
)
SOFTMAX: frozenset[Target] = frozenset({F.softmax, torch.softmax, "softmax"})
MULTIPLY: frozenset[Target] = frozenset({operator.mul, torch.mul, "mul"})
DIVIDE: frozenset[Target] = frozenset({operator.truediv, torch.div, torch.true_divide, "div"})
ADD: frozenset[Target] = frozenset({operator.add, torch.add, "add"})
CASTS: frozenset[Target] = frozenset({"to", "float", "half", "bfloat16", "type_as"})


def fuse_attention(gm: fx.GraphModule, devices: tuple[str, ...] = ("cuda",)) -> int:
    """Rewrite every one on these devices; how many were."""
    if torch.are_deterministic_algorithms_enabled() or not torch.is_grad_enabled():
        return 0
    if any("autocast" in str(node.target) for node in gm.graph.nodes):
        return 0  # what is written down is not the dtype that is computed in
    fused = sum(_fused(gm.graph, node, devices) for node in list(gm.graph.nodes))
    if fused:
        gm.recompile()
    return fused


def _fused(graph: fx.Graph, last: fx.Node, devices: tuple[str, ...]) -> bool:
    if not calls(last, PRODUCTS) or len(last.args) != 2 or last.kwargs:
        return False
    weights, v = last.args
    inside: list[fx.Node] = []
    node = _through(weights, inside)
    if not calls(node, SOFTMAX) or not _along_rows(node):
        return False
    inside.append(node)
    scale, causal, node = 1.0, False, _through(node.args[0], inside)
    while not calls(node, PRODUCTS):
        factor, source = _factor(node), None
        if factor is not None:
            scale, source = scale * factor, node.args[0]
        elif not causal:
            source = _masked(node)
            causal = source is not None
        if source is None:
            return False
        inside.append(node)
        node = _through(source, inside)
    if len(node.args) != 2 or node.kwargs or not 0 < scale < math.inf:
        return False
    inside.append(node)
    q, turned = node.args
    if any(set(each.users) - {*inside, last} for each in inside):
        return False  # somebody else looks at the scores or the weights
    if not _fits(q, turned, v, last, devices):
        return False
    if causal and _value(q).shape[-2] != _value(v).shape[-2]:
        return False  # the mask was made for another number of rows
    with graph.inserting_before(last):
        made = graph.call_function(attended, (q, turned, v, float(scale), causal))
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)
    graph.erase_node(last)
    erase_unused(inside)
    return True


def _factor(node: Any) -> float | None:
    """The number that a node multiplies its operand by."""
    if not (calls(node, MULTIPLY) or calls(node, DIVIDE)):
        return None
    number = node.args[1] if len(node.args) == 2 and not node.kwargs else None
    if not isinstance(number, int | float) or number == 0 or not math.isfinite(number):
        return None
    return float(number) if node.target in MULTIPLY else 1 / number


def _masked(node: Any) -> Any:
    """The scores of which a node hides those above the diagonal; None if it does something else."""
    if not (calls(node, FILL) or calls(node, ADD)) or node.kwargs:
        return None
    if len(node.args) < 2:
        return None
    value, (scores, mask, *rest) = _value(node), node.args
    size = value.shape[-1] if isinstance(value, Tensor) and value.dim() else 0
    if calls(node, FILL):
        hidden = rest == [-math.inf] and above_diagonal(mask, size)
    else:
        hidden = not rest and infinite_above_diagonal(mask, size)
    return scores if hidden else None


def _fits(q: Any, turned: Any, v: Any, last: fx.Node, devices: tuple[str, ...]) -> bool:
    values = [_value(each) for each in (q, turned, v, last)]
    if not all(isinstance(t, Tensor) for t in values):
        return False
    first, second, third, result = values
    if first.device.type not in devices or len({t.device for t in values}) != 1:
        return False
    if len({t.dtype for t in values}) != 1 or first.dtype not in DTYPES:
        return False
    if not any(t.requires_grad for t in values[:3]):
        return False
    if any(not isinstance(n, int) for t in values for n in t.shape) or first.dim() not in (3, 4):
        return False
    if not result.is_contiguous():  # what is made is, for whoever looks at it through a view
        return False
    *batch, length, width = first.shape
    keys, out = third.shape[-2:]
    same = list(second.shape) == [*batch, width, keys] and list(third.shape) == [*batch, keys, out]
    if not same or list(result.shape) != [*batch, length, out]:
        return False
    return keys >= LEAST_LENGTH and 0 not in (*first.shape, out) and takes(first, width, out)


def _along_rows(node: fx.Node) -> bool:
    """Whether a softmax is over the last dimension, in a precision that the kernels have too."""
    value = _value(node)
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    wide = node.args[3] if len(node.args) > 3 else node.kwargs.get("dtype")
    if not isinstance(value, Tensor) or dim not in (-1, value.dim() - 1):
        return False
    known = {"dim", "dtype", "_stacklevel"}
    return wide in (None, *DTYPES) and not set(node.kwargs) - known


def _through(node: Any, inside: list[fx.Node]) -> Any:
    """What `node` is in another precision, or with a dropout that drops nothing."""
    while isinstance(node, fx.Node):
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or not (_casts(node, source) or _drops_nothing(node)):
            return node
        inside.append(node)
        node = source
    return node


def _casts(node: fx.Node, source: fx.Node) -> bool:
    if node.op != "call_method" or node.target not in CASTS:
        return False
    before, after = _value(source), _value(node)
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return False
    known = before.dtype in DTYPES and after.dtype in DTYPES
    return known and before.device == after.device


def _drops_nothing(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not F.dropout:
        return False
    settings = dict(zip(("p", "training", "inplace"), node.args[1:], strict=False)) | node.kwargs
    return bool(settings.get("p", 0.5) == 0.0 or settings.get("training", True) is False)


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, fx.Node) else node
