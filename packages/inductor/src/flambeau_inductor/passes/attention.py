"""Attention that was written out, as the one primitive for it.

In: `softmax(q @ k^T * scale + bias) @ v` in primitives, products in batches. Out:
`attention(q, k, v, bias)`. Invariant: only where nobody else needs the scores or the weights (they
are never in memory afterwards), and only for what the primitive computes by the same formula: no
scale after the bias, no positions replaced, no dropout.

The library's kernel gives 0 for a row in which every score is -inf, where the formula gives NaN:
a bias is therefore taken only if the graph itself shows that all of it is finite, as the masks are
that models make out of truth values and the smallest number (`finite`), or, if it is made of
constants, that no row of it is -inf throughout. Scores that are replaced where a mask holds are the
same with a bias there, if what replaces them is so low that no score changes it (`LOWEST`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.passes.attention_masks import (
    LOWEST,
    Hidden,
    chosen,
    constant_of,
    finite,
    finite_rows,
    is_causal,
)
from flambeau_inductor.passes.match import name_of

HALF = (torch.bfloat16, torch.float16)
DTYPES = (*HALF, torch.float32)
CUDA_WIDTHS = 8
"""The kernel on a GPU reads so many elements at a time."""
LEAST_LENGTH = 16
"""Fewer keys than this are not worth the kernel's start."""


@dataclass(slots=True)
class _Scores:
    """What the scores are made of: products times the scale, a bias, and what replaces them."""

    product: fx.Node
    scale: float
    bias: fx.Node | None
    hidden: Hidden | None
    shape: tuple[int, ...]


def written_out_attention(graph: fx.Graph) -> int:
    """Rewrite every one; returns how many."""
    rewritten = 0
    for node in list(graph.nodes):
        if name_of(node) == "bmm" and _rewritten(graph, node):
            rewritten += 1
    return rewritten


def _rewritten(graph: fx.Graph, last: fx.Node) -> bool:
    weights, v = last.args[0], last.args[1]
    if not isinstance(weights, fx.Node) or not isinstance(v, fx.Node):
        return False
    inside: list[fx.Node] = [last]
    logits = _softmaxed(_through(weights, inside), inside)
    if logits is None:
        return False
    scores = _scores(logits, inside)
    if scores is None or not _alone(inside):
        return False
    q, k = scores.product.args[0], scores.product.args[1]
    if not isinstance(q, fx.Node) or not isinstance(k, fx.Node):
        return False
    if len({_value(x).dtype for x in (q, k, v, last)}) != 1 or _value(q).dtype not in DTYPES:
        return False
    lowest = torch.finfo(_value(q).dtype).min
    if scores.hidden is not None and math.isfinite(scores.hidden.low) and lowest > LOWEST:
        return False  # it would not hide everything in half precision
    shapes = [_sizes(x) for x in (q, k, v)]
    if any(sizes is None for sizes in shapes) or len(scores.shape) < 3:
        return False
    (batch, length, width), (_, _, keys), (_, _, out) = (s for s in shapes if s is not None)
    before = scores.shape[:-2]
    outer = (math.prod(before[:-1]), before[-1]) if len(before) > 1 else (batch, 1)
    if math.prod(outer) != batch or scores.shape[-2:] != (length, keys) or keys < LEAST_LENGTH:
        return False
    if _value(q).device.type == "cuda" and (width % CUDA_WIDTHS or out % CUDA_WIDTHS):
        return False
    _replace(graph, last, q, k, v, scores, (*outer, length, width, keys, out))
    return True


def _replace(
    graph: fx.Graph,
    last: fx.Node,
    q: fx.Node,
    k: fx.Node,
    v: fx.Node,
    scores: _Scores,
    sizes: tuple[int, ...],
) -> None:
    first, second, length, width, keys, out = sizes
    heads = [first, second]

    def called(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = graph.call_function(target, args, kwargs)
        if target is operator.getitem:
            node.meta["val"] = args[0].meta["val"][args[1]]
        else:
            node.meta["val"] = value_of(node)
        if "stack_trace" in last.meta:
            node.meta["stack_trace"] = last.meta["stack_trace"]
        return node

    reshape, permute = PRIMS["reshape"].overload, PRIMS["permute"].overload
    with graph.inserting_before(last):
        turned = called(reshape, k, [*heads, width, keys])
        bias, hidden = scores.bias, scores.hidden
        causal = hidden is not None and bias is None and is_causal(hidden)
        if hidden is not None and not causal:
            value = _value(q)
            made = {"dtype": value.dtype, "device": value.device}
            low = max(hidden.low, torch.finfo(value.dtype).min)
            low = hidden.low if math.isinf(hidden.low) else low
            full, where = PRIMS["full"].overload, PRIMS["where"].overload
            replaced = called(full, list(scores.shape), low, **made)
            kept = bias if bias is not None else called(full, list(scores.shape), 0.0, **made)
            pair = (kept, replaced) if hidden.seen else (replaced, kept)
            bias = called(where, hidden.mask, *pair)
        if bias is not None and len(scores.shape) != 4:
            bias = called(reshape, bias, [*heads, length, keys])
        attended = called(
            PRIMS["attention"].overload,
            called(reshape, q, [*heads, length, width]),
            called(permute, turned, [0, 1, 3, 2]),
            called(reshape, v, [*heads, keys, out]),
            bias,
            0.0,
            causal,
            scale=float(scores.scale),
        )
        flat = called(reshape, called(operator.getitem, attended, 0), [first * second, length, out])
    last.replace_all_uses_with(flat)
    graph.erase_node(last)


def _softmaxed(weights: fx.Node, inside: list[fx.Node]) -> fx.Node | None:
    """What `weights` is the softmax of, along the last dimension."""
    if name_of(weights) != "div":
        return None
    powers, total = weights.args[0], _broadcast(weights.args[1], inside)
    if not isinstance(powers, fx.Node) or name_of(powers) != "exp" or total is None:
        return None
    if name_of(total) != "sum" or total.args[0] is not powers or not _last(total, weights):
        return None
    moved = powers.args[0]
    if not isinstance(moved, fx.Node) or name_of(moved) != "sub":
        return None
    logits, top = moved.args[0], _broadcast(moved.args[1], inside)
    if not isinstance(logits, fx.Node) or top is None or name_of(top) != "amax":
        return None
    if top.args[0] is not logits or not _last(top, weights):
        return None
    inside += [weights, powers, total, moved, top]
    return logits


def _scores(logits: fx.Node, inside: list[fx.Node]) -> _Scores | None:
    """The product that the logits are a scaled one of, with what is added."""
    shape = _sizes(logits)
    if shape is None:
        return None
    bias: fx.Node | None = None
    hidden: Hidden | None = None
    scale = 1.0
    node = logits
    while True:
        node = _through(node, inside)
        name = name_of(node)
        if name == "bmm":
            inside.append(node)
            return _Scores(node, scale, bias, hidden, shape)
        if name == "where" and hidden is None and bias is None and scale == 1.0:
            replaced = chosen(node, shape)
            if replaced is None:
                return None
            inside.append(node)
            node, hidden = replaced
            continue
        if name == "add" and bias is None and scale == 1.0:
            found = _added(node, inside)
            if found is None:
                return None
            inside.append(node)
            node, bias = found
            continue
        if name not in ("mul", "div") or not isinstance(node.args[0], fx.Node):
            return None
        constant = constant_of(node.args[1])
        if constant is None or constant == 0 or not math.isfinite(constant):
            return None
        scale = scale * constant if name == "mul" else scale / constant
        inside.append(node)
        node = node.args[0]


def _added(node: fx.Node, inside: list[fx.Node]) -> tuple[fx.Node, fx.Node] | None:
    """The scores and the bias of their sum, the bias in the dtype of the product."""
    for scores, bias in (node.args[:2], node.args[:2][::-1]):
        if not isinstance(scores, fx.Node) or not isinstance(bias, fx.Node):
            continue
        trail: list[fx.Node] = []
        source = _through(scores, trail)
        while name_of(source) in ("mul", "div") and isinstance(source.args[0], fx.Node):
            source = _through(source.args[0], trail)
        if name_of(source) != "bmm":
            continue
        narrow = bias
        if name_of(bias) == "cast" and isinstance(bias.args[0], fx.Node):
            narrow = bias.args[0]
        if _value(narrow).dtype != _value(source).dtype:
            return None
        if not finite(narrow) and not finite_rows(narrow):
            return None
        if tuple(_value(narrow).shape) != tuple(_value(node).shape):
            return None
        return scores, narrow
    return None


def _through(node: fx.Node, inside: list[fx.Node]) -> fx.Node:
    """What `node` shows in other shapes or another precision."""
    while True:
        name = name_of(node)
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node):
            return node
        if name == "cast":
            pair = (_value(source).dtype, _value(node).dtype)
            if not all(dtype in DTYPES for dtype in pair):
                return node
        elif name == "permute":
            turned = _turned_back(node)
            if turned is None:
                return node
            inside += turned[:-1]
            node, source = turned[-1], turned[-1].args[0]
            assert isinstance(source, fx.Node)
        elif name not in ("reshape", "broadcast_in_dim") or not _keeps_rows(node, source):
            return node
        inside.append(node)
        node = source


def _keeps_rows(node: fx.Node, source: fx.Node) -> bool:
    """Whether a reshape, or dimensions of one, leave the matrices of queries and keys alone."""
    new = [n for n in _value(node).shape if n != 1]
    old = [n for n in _value(source).shape if n != 1]
    return new[-2:] == old[-2:] and math.prod(new) == math.prod(old)


def _turned_back(node: fx.Node) -> list[fx.Node] | None:
    """Permutations, one of the other, that together leave the order of all dimensions longer than
    one: the first is `node`; None if there are none."""
    found: list[fx.Node] = []
    order = list(range(len(_value(node).shape)))
    while name_of(node) == "permute":
        source, step = node.args[0], node.args[1]
        if not isinstance(source, fx.Node) or not isinstance(step, Sequence):
            return None
        order = [int(str(step[d])) for d in order]
        found.append(node)
        shape = _value(source).shape
        long = [d for d in order if shape[d] != 1]
        if long == sorted(long):
            return found
        node = source
    return None


def _broadcast(node: object, inside: list[fx.Node]) -> fx.Node | None:
    """The reduced rows that `node` repeats along the last dimension."""
    if not isinstance(node, fx.Node) or name_of(node) != "broadcast_in_dim":
        return None
    source, dims = node.args[0], node.args[2]
    rank = len(_value(node).shape)
    if not isinstance(source, fx.Node) or list(dims) != list(range(rank - 1)):  # type: ignore[arg-type]
        return None
    inside.append(node)
    return source


def _last(reduction: fx.Node, like: fx.Node) -> bool:
    """Whether a reduction is over the last dimension."""
    return list(reduction.args[1]) == [len(_value(like).shape) - 1]  # type: ignore[arg-type]


def _alone(inside: Sequence[fx.Node]) -> bool:
    """Whether all that is left out is used inside alone; the last product comes first."""
    members = set(inside)
    return all(user in members for node in inside[1:] for user in node.users)


def _value(node: fx.Node) -> Any:
    return value_of(node)


def _sizes(node: fx.Node) -> tuple[int, ...] | None:
    """The shape, where it is all numbers."""
    shape = tuple(_value(node).shape)
    return shape if all(isinstance(n, int) for n in shape) else None
