"""Expansion of transformer encoder layers.

In: a captured graph of torch functions. Out: the same graph, in which the operator that
`nn.TransformerEncoderLayer` calls in inference is a function of its parts (norms, attention, linear
maps), which fuse. Invariant: only dense batches without a mask; the operator's order of operations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from flambeau_inductor._torch_compat import encoder_layer
from flambeau_inductor.node_queries import val_of
from flambeau_inductor.passes.rewriter import Call, Match, Rule

OPERANDS = 18
"""Arguments before the mask."""


def _is_dense(node: fx.Node) -> bool:
    if (
        node.kwargs
        or len(node.args) < OPERANDS
        or any(part is not None for part in node.args[OPERANDS:])
    ):
        return False
    tensors = [val_of(part) for part in node.args[:OPERANDS] if isinstance(part, fx.Node)]
    dense = all(isinstance(t, Tensor) and not t.is_nested for t in tensors)
    return dense and bool(tensors) and tensors[0].dim() == 3


def layer_by_parts(source: Tensor, width: int, heads: int, *rest: Any) -> Tensor:
    """What the operator computes of `source` [batch, length, width]; `rest` are its operands: maps
    and norms as weight and bias, and which activation and order of norms it has."""
    qkv_weight, qkv_bias, out_weight, out_bias, gelu, norm_first, eps, *weights = rest
    norm1_weight, norm1_bias, norm2_weight, norm2_bias, *maps = weights
    wide_weight, wide_bias, narrow_weight, narrow_bias = maps

    def attended(x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = F.linear(x, qkv_weight, qkv_bias).view(batch, length, 3, heads, width // heads)
        q, k, v = (parts[:, :, each].transpose(1, 2) for each in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return F.linear(mixed.reshape(batch, length, width), out_weight, out_bias)

    def fed(x: Tensor) -> Tensor:
        inner = F.linear(x, wide_weight, wide_bias)
        inner = F.gelu(inner) if gelu else torch.relu(inner)
        return F.linear(inner, narrow_weight, narrow_bias)

    norm = partial(F.layer_norm, normalized_shape=(width,), eps=eps)
    norm1 = partial(norm, weight=norm1_weight, bias=norm1_bias)
    norm2 = partial(norm, weight=norm2_weight, bias=norm2_bias)
    if norm_first:
        middle = source + attended(norm1(source))
        return middle + fed(norm2(middle))
    middle = norm1(source + attended(source))
    return norm2(middle + fed(middle))


def _by_parts(m: Match) -> fx.Node:
    return m.call(layer_by_parts, *m.root.args[:OPERANDS])


_LAYER = Call(frozenset({encoder_layer.__name__}), (), _is_dense)
RULES = (Rule("open_encoder_layers", (_LAYER,), _by_parts),)
