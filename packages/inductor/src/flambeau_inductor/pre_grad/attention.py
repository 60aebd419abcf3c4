"""Attention fusion in a captured graph, and masks that are known when it is compiled.

In: a captured graph of torch functions on fake tensors. Out: the same graph, in which
`softmax(q @ k^T * scale) @ v` is a fused kernel, calls of attention have no mask that hides
nothing, or exactly what comes later, and operands that a fused kernel can read. Invariant: only
where nobody else needs the scores or weights, without dropout, and where an operand needs a
gradient or the mask is causal (other graphs without gradients are rewritten as primitives, where
more is known: `passes.attention`).

Traced as it is written, a training program keeps the weights of every pair of positions; fused
kernels keep a number a row, but refuse masks that models expand along the keys at every call.

Expansion of transformer encoder layers. In: a captured graph of torch functions. Out: the same
graph, in which the operator that `nn.TransformerEncoderLayer` calls in inference is a function of
its parts (norms, attention, linear maps), which fuse. Invariant: only dense batches without a mask;
the operator's order of operations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from flambeau_inductor._torch_compat import encoder_layer
from flambeau_inductor.node_queries import argument, op_of, under_autocast, val_of
from flambeau_inductor.passes.attention import (
    DTYPES,
    LEAST_LENGTH,
    hidden_by,
    hides_later,
    scores,
    scores_of,
)
from flambeau_inductor.passes.rewriter import (
    Argument,
    Call,
    Either,
    Ledger,
    Match,
    Pattern,
    Rule,
    Seen,
    Test,
    Value,
    ops,
    rewrite_module,
)
from flambeau_inductor.runtime.fused_attention import attended, readable, takes

CASTS = frozenset({"to", "float", "half", "bfloat16", "type_as"})
Devices = tuple[str, ...]
GPU: Devices = ("cuda",)


def _shows(node: fx.Node) -> Sequence[fx.Node] | None:
    """A node that is its operand in another precision, or with a dropout that drops nothing."""
    before, after = val_of(node.args[0]), val_of(node)
    if op_of(node) == "dropout":
        nothing = argument(node, "p") == 0.0 or argument(node, "training") is False
        return (node,) if nothing else None
    if op_of(node) not in CASTS or not all(isinstance(t, Tensor) for t in (before, after)):
        return None
    same = before.device == after.device and {before.dtype, after.dtype} <= {*DTYPES}
    return (node,) if same else None


def _transposed(node: fx.Node) -> bool | None:
    """Whether a product takes its second operand transposed; None if it is none of matrices."""
    if op_of(node) != "einsum":
        return False
    terms = re.fullmatch(
        r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", str(node.args[0]).replace(" ", "")
    )
    if terms is None:
        return None
    first, second, out = terms.groups()
    if len({*first, *second}) != len(out) + 1 or len(out) < 3:
        return None
    batch, row, column, inner = out[:-2], out[-2], out[-1], first[-1]
    if first != batch + row + inner or inner in out:
        return None
    transposed = second == batch + column + inner
    return transposed if transposed or second == batch + inner + column else None


def _along_rows(node: fx.Node) -> bool:
    """Whether a softmax is over the last dimension, in a precision that the kernels have too."""
    found = val_of(node)
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    wide = node.args[3] if len(node.args) > 3 else node.kwargs.get("dtype")
    if not isinstance(found, Tensor) or dim not in (-1, found.dim() - 1):
        return False
    return wide in (None, *DTYPES) and not set(node.kwargs) - {"dim", "dtype", "_stacklevel"}


def _products(a: Pattern, b: Pattern, where: Test, name: str | None) -> tuple[Call, Call]:
    by_letters = Call(frozenset({"einsum"}), (Argument(), a, b), where, name)
    return Call(frozenset({"matmul", "bmm"}), (a, b), None, name), by_letters


_PRODUCT = _products(Value("q"), Value("k"), lambda node: _transposed(node) is not None, "product")
_SCORES = scores(Either(_PRODUCT), _shows)
_WEIGHTS = Seen(ops.softmax(_SCORES, where=_along_rows), _shows)


def fuse_attention(gm: fx.GraphModule, devices: Devices = GPU, ledger: Ledger | None = None) -> int:
    """Rewrite every attention on these devices that is written out; how many were."""
    if torch.are_deterministic_algorithms_enabled() or under_autocast(gm.graph):
        return 0
    patterns = _products(_WEIGHTS, Value("v"), lambda node: _transposed(node) is False, None)
    rule = Rule("fuse_attention", patterns, partial(_attention, devices=devices))
    return rewrite_module(gm, (rule,), ledger)


def _attention(m: Match, devices: Devices) -> fx.Node | None:
    q, k, found = m["q"], m["k"], scores_of(m)
    values = [val_of(each) for each in (q, k, m["v"], m.root)]
    transposed = _transposed(m["product"])
    if found is None or not all(isinstance(t, Tensor) for t in values):
        return None
    if transposed:
        values[1] = values[1].transpose(-2, -1)
    causal = found.bias is not None or found.hidden is not None
    sizes = (
        [int(n) for n in val_of(m["product"]).shape[-2:]] if _fits(values, causal, devices) else []
    )
    if not sizes or (causal and not found.later(m.constants, *sizes)):
        return None
    if transposed:
        k = m.call("transpose", k, -2, -1)
        k.meta["val"] = values[1]
    return m.call(attended, q, k, m["v"], float(found.scale), causal)


def _fits(values: list[Any], causal: bool, devices: Devices) -> bool:
    first, second, third, result = values
    if first.device.type not in devices or len({t.device for t in values}) != 1:
        return False
    if len({t.dtype for t in values}) != 1 or first.dtype not in DTYPES:
        return False
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in values[:3])
    if not learns and not causal:
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


# --- masks that attention is given -------------------------------------------------------------

PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def drop_constant_masks(
    gm: fx.GraphModule, devices: Devices = GPU, ledger: Ledger | None = None
) -> int:
    """Rewrite every call of attention on these devices whose mask is known; how many were."""
    if torch.are_deterministic_algorithms_enabled():
        return 0
    call = ops.scaled_dot_product_attention(where=lambda node: True)
    rule = Rule("drop_constant_masks", (call,), partial(_without_mask, devices=devices))
    return rewrite_module(gm, (rule,), ledger)


def _without_mask(m: Match, devices: Devices) -> fx.Node | None:
    given = _given(m.root)
    made, q, k = (val_of(each) for each in (m.root, given.get("query"), given.get("key")))
    if not isinstance(made, Tensor) or made.device.type not in devices:
        return None
    if given.get("is_causal", False) is not False:
        return None
    mask = m.constants.of(given.get("attn_mask"))
    if mask is None or mask.dim() < 2:
        return None
    lowest = torch.finfo(mask.dtype).min if mask.is_floating_point() else 0.0
    hidden = ~mask if mask.dtype == torch.bool else hidden_by(mask, lowest)
    if hidden is None:
        return None
    causal = bool(hidden.any())
    if causal and not hides_later(hidden, q.shape[-2], k.shape[-2]):
        return None
    return m.call(m.root.target, **{**given, "attn_mask": None, "is_causal": causal})  # type: ignore[arg-type]


def _given(call: fx.Node) -> dict[str, Any]:
    return dict(zip(PARAMETERS, call.args, strict=False)) | call.kwargs


# --- operands that no kernel reads as they lie ---------------------------------------------------


def fuse_strided_attention(
    gm: fx.GraphModule, devices: Devices = GPU, ledger: Ledger | None = None
) -> int:
    """Rewrite every call of attention on these devices that torch would compute by products, in
    float32, for no other reason than how its operands lie (a bias that a table was looked up for
    has its heads side by side); how many were."""
    if torch.are_deterministic_algorithms_enabled() or under_autocast(gm.graph):
        return 0
    if any("choice" in str(node.target) for node in gm.graph.nodes):
        return 0  # the program chooses torch's kernels for a part of the graph
    call = ops.scaled_dot_product_attention(where=lambda node: True)
    rule = Rule("fuse_strided_attention", (call,), partial(_readable_attention, devices=devices))
    return rewrite_module(gm, (rule,), ledger)


def _readable_attention(m: Match, devices: Devices) -> fx.Node | None:
    given = _given(m.root)
    causal, scale = given.get("is_causal", False), given.get("scale")
    if given.get("dropout_p", 0.0) != 0 or given.get("enable_gqa", False) is not False:
        return None
    parts = [given.get(name) for name in PARAMETERS[:4]]
    operands: list[Any] = [None if part is None else val_of(part) for part in parts]
    q, k, v, _ = operands
    made = val_of(m.root)
    if not all(isinstance(t, Tensor) for t in (q, k, v, made)) or not isinstance(causal, bool):
        return None
    plain = scale is None or isinstance(scale, int | float)
    if not plain or q.device.type not in devices or not made.is_contiguous() or q.dim() != 4:
        return None
    tensors = [t for t in operands if t is not None]
    if any(not isinstance(n, int) for t in tensors for n in t.shape) or 0 in made.shape:
        return None
    if len({t.dtype for t in tensors}) != 1 or k.shape[:2] != q.shape[:2]:
        return None
    how = (0.0, causal, False)
    if _library_fuses(*operands, *how) or not takes(q, q.shape[-1], v.shape[-1]):
        return None
    if not _library_fuses(*(t if t is None else readable(t) for t in operands), *how):
        return None
    turned = m.call("transpose", parts[1], -2, -1)
    factor = float(q.shape[-1] ** -0.5 if scale is None else scale)
    return m.call(attended, parts[0], turned, parts[2], factor, causal, parts[3])


def _library_fuses(*call: Any) -> bool:
    """Whether one of torch's fused kernels, of those that are allowed, takes such operands."""
    params = torch.backends.cuda.SDPAParams(*call)
    return any(can(params) for can in _TAKEN_BY)


_TAKEN_BY = (
    torch.backends.cuda.can_use_flash_attention,
    torch.backends.cuda.can_use_efficient_attention,
    torch.backends.cuda.can_use_cudnn_attention,
)


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
