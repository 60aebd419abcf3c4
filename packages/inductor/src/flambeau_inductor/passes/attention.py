"""Pattern matching of written-out attention.

In: `softmax(q @ k^T * scale + bias) @ v` in primitives, products in batches. Out:
`attention(q, k, v, bias)`. Invariant: only where nobody else needs the scores or the weights, and
only what the primitive computes by the same formula: a bias is finite, or hides no row; scores are
replaced by what is so low that no score changes it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import dtype_of, static_shape, val_of
from flambeau_inductor.passes.attention_scores import (
    DTYPES,
    LEAST_LENGTH,
    LOWEST,
    Hidden,
    Scores,
    every_row_sees,
    finite_rows,
    is_finite,
    scores,
    scores_of,
)
from flambeau_inductor.passes.rewriter import Call, Match, Named, Pattern, Rule, Seen, Value, ops

CUDA_WIDTHS = 8
"""The kernel on a GPU reads so many elements at a time."""


def _shows(node: fx.Node) -> Sequence[fx.Node] | None:
    """The nodes by which a matrix of scores is seen in other shapes or another precision."""
    name, source = name_of(node), node.args[0]
    if not isinstance(source, fx.Node):
        return None
    if name == "cast":
        return (node,) if {dtype_of(node), dtype_of(source)} <= {*DTYPES} else None
    if name == "permute":
        return _inverse_permutations(node)
    shapes = static_shape(node), static_shape(source)
    if name not in ("reshape", "broadcast_in_dim") or None in shapes:
        return None
    new, old = ([n for n in shape or () if n != 1] for shape in shapes)
    return (node,) if new[-2:] == old[-2:] and math.prod(new) == math.prod(old) else None


def _inverse_permutations(node: fx.Node) -> list[fx.Node] | None:
    """Permutations that together leave the order of all dimensions longer than one."""
    found: list[fx.Node] = []
    order = list(range(len(static_shape(node) or ())))
    while name_of(node) == "permute":
        source, step, shape = node.args[0], node.args[1], static_shape(node.args[0])
        if not isinstance(source, fx.Node) or not isinstance(step, Sequence) or shape is None:
            return None
        order = [int(str(step[d])) for d in order]
        found.append(node)
        long = [d for d in order if shape[d] != 1]
        if long == sorted(long):
            return found
        node = source
    return None


def _row(reduction: str, of: Pattern) -> Pattern:
    """A reduction along the last dimension, as it is repeated there."""

    def is_last(node: fx.Node) -> bool:
        return list(node.args[1]) == [len(static_shape(node.args[0]) or ()) - 1]  # type: ignore[arg-type]

    def is_repeated(node: fx.Node) -> bool:
        return list(node.args[2]) == list(range(len(static_shape(node) or ()) - 1))  # type: ignore[arg-type]

    made = getattr(ops, reduction)(of, where=is_last)
    return Call(frozenset({"broadcast_in_dim"}), (made,), is_repeated)


_LOGITS = Named("logits", scores(ops.bmm(Value("q"), Value("k")), _shows))
_POWERS = Named("powers", ops.exp(_LOGITS - _row("amax", _LOGITS)))
_WEIGHTS = _POWERS / _row("sum", _POWERS)


def _attention(m: Match) -> fx.Node | None:
    q, k, v, last = m["q"], m["k"], m["v"], m.root
    found, shape = scores_of(m), static_shape(m["logits"])
    sizes = [static_shape(x) for x in (q, k, v)]
    dtype = dtype_of(q)
    if found is None or shape is None or None in sizes or len(shape) < 3:
        return None
    if dtype is None or {dtype_of(x) for x in (k, v, last)} != {dtype} or dtype not in DTYPES:
        return None
    (batch, length, width), (_, _, keys), (_, _, out) = (s for s in sizes if s is not None)
    outer = (math.prod(shape[:-3]), shape[-3]) if len(shape) > 3 else (batch, 1)
    if math.prod(outer) != batch or shape[-2:] != (length, keys) or keys < LEAST_LENGTH:
        return None
    if val_of(q).device.type == "cuda" and (width % CUDA_WIDTHS or out % CUDA_WIDTHS):
        return None
    added = _added(m, found, shape, dtype)
    if added is None:
        return None
    bias, causal = added
    prim = {name: PRIMS[name].overload for name in ("reshape", "permute", "attention")}
    turned = m.call(prim["reshape"], k, [*outer, width, keys])
    if bias is not None and len(shape) != 4:
        bias = m.call(prim["reshape"], bias, [*outer, length, keys])
    attended = m.call(
        prim["attention"],
        m.call(prim["reshape"], q, [*outer, length, width]),
        m.call(prim["permute"], turned, [0, 1, 3, 2]),
        m.call(prim["reshape"], v, [*outer, keys, out]),
        bias,
        0.0,
        causal,
        scale=found.scale,
    )
    return m.call(prim["reshape"], m.call(operator.getitem, attended, 0), [batch, length, out])


def _added(
    m: Match, found: Scores, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[fx.Node | None, bool] | None:
    """The bias of scores in the dtype of the product, and whether later ones are hidden."""
    bias, hidden, constants = found.bias, found.hidden, m.constants
    if found.later(constants, *shape[-2:]) and (hidden is None or _fits(hidden, dtype)):
        return None, True
    if bias is not None:
        if name_of(bias) == "cast" and isinstance(bias.args[0], fx.Node):
            bias = bias.args[0]
        if dtype_of(bias) != dtype or static_shape(bias) != shape or found.scaled:
            return None
        if not is_finite(bias) and not finite_rows(constants.of(bias)):
            return None
    if hidden is None:
        return bias, False
    if static_shape(hidden.mask) != shape or not _fits(hidden, dtype):
        return None
    if hidden.low == -math.inf and not every_row_sees(hidden.by_value(constants)):
        return None
    like = {"dtype": dtype, "device": val_of(m["q"]).device}
    low = hidden.low if math.isinf(hidden.low) else max(hidden.low, torch.finfo(dtype).min)
    full = partial(m.call, PRIMS["full"].overload, list(shape))
    replaced = full(low, **like)
    kept = full(0.0, **like) if bias is None else bias
    pair = (kept, replaced) if hidden.seen else (replaced, kept)
    return m.call(PRIMS["where"].overload, hidden.mask, *pair), False


def _fits(hidden: Hidden, dtype: torch.dtype) -> bool:
    """Whether what is in the place of scores hides them in this precision."""
    return hidden.low == -math.inf or torch.finfo(dtype).min <= LOWEST


RULES = (Rule("written_out_attention", (ops.bmm(Seen(_WEIGHTS, _shows), Value("v")),), _attention),)
