"""Lowering of library primitives: pooling's derivatives, attention, sorting, transfers.

In: operands. Out: `LibraryCall`s on ATen overloads; sums on a GPU for attention of one query to few
keys, which takes as long as reading the keys and values. Invariant: results have the layouts that
the primitive's shape rule promised (`out` variants write into them; the wrapper ensures it of
others).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from flambeau_inductor.indexing import Expr, as_expr, hint, known, simplify, static_sizes
from flambeau_inductor.ir.tensors import (
    Choose,
    Node,
    Pointwise,
    Reduction,
    Result,
    TensorScan,
    View,
    dim_ranges,
    dims_of,
    dot,
    spread,
)
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.lowering.rules.matmul import SUMMED, summed
from flambeau_inductor.runtime.fused_attention import WIDEST
from flambeau_inductor.tuning import tuning_of

SAME_ARGUMENTS = {
    "avg_pool2d_backward": "aten.avg_pool2d_backward.default",
    "topk": "aten.topk.default",
}
"""Primitive: the overload that takes its arguments in the same order."""


@rule(*SAME_ARGUMENTS)
def same_arguments(ctx: Context, name: str, *args: Any) -> Lowered:
    return called(ctx, SAME_ARGUMENTS[name], *args)


def called(ctx: Context, target: str, *args: Any) -> Lowered:
    """The results of a library call."""
    results = ctx.call(target, args)
    return single(results) if len(results) == 1 else tuple(results)


@rule("sort")
def sort(ctx: Context, a: Node, dim: int, descending: bool, stable: bool) -> Lowered:
    kwargs = (("stable", stable), ("dim", dim), ("descending", descending))
    return tuple(ctx.call("aten.sort.stable", (a,), kwargs))


@rule("device_put")
def device_put(ctx: Context, a: Node, *, device: torch.device) -> Lowered:
    """A copy to a GPU waits for the GPU only where somebody else may write to the operand
    meanwhile: memory that is not pinned has been read when the call returns."""
    there = torch.device(device)
    queued = (a.device.type, there.type) == ("cpu", "cuda") and _made_here(a)
    kwargs = (("device", there), *((("non_blocking", True),) if queued else ()))
    return single(ctx.call("aten._to_copy.default", (a,), kwargs))


def _made_here(a: Node) -> bool:
    """Whether a value has memory that this program allocates."""
    define = a.define
    if isinstance(define, View):
        return _made_here(define.base)
    if isinstance(define, Result):
        return define.call.out
    return isinstance(define, Choose | Pointwise | Reduction | TensorScan)


def _rows(ctx: Context, *operands: Node) -> tuple[Node, ...]:
    """Operands with unit steps along rows, which a CPU's kernels take for granted."""
    return tuple(node if _unit_step(node) else ctx.point("clone", (node,)) for node in operands)


def _unit_step(node: Node) -> bool:
    """Whether neighbours along the last dimension are neighbours in memory."""
    step: int | Expr | None = node.stride[-1]
    if isinstance(node.define, View):
        inner = dims_of(len(node.shape))[-1].name
        step = dot(node.define.index, node.define.base.stride).coefficient(inner)
    return step is not None and known("eq", step, 1) is True


@rule("attention")
def attention(
    ctx: Context, q: Node, k: Node, v: Node, bias: Node | None, *how: Any, scale: Any = None
) -> Lowered:
    if q.device.type != "cpu":
        if not any(how) and is_of_one_query(q, k, v):
            if ctx.first_alone:
                return _result_of_one_query(ctx, q, k, v, bias, scale)
            out, total, top = of_one_query(ctx, q, k, v, bias, scale)
            logarithms = ctx.point("add", (ctx.point("log", (total,)), top))
            sums, (batch, heads) = ctx.metas[1], dims_of(2)
            assert sums is not None
            return out, ctx.view(logarithms, sums.shape, (batch, heads, as_expr(0)))
        target = "flambeau_prims.attention.default"
        return tuple(ctx.call(target, (q, k, v, bias, *how), (("scale", scale),)))
    target = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    kwargs = (("attn_mask", bias), ("scale", scale))
    return tuple(ctx.call(target, (*_rows(ctx, q, k, v), *how), kwargs))


BIASED = tuple(f"aten._scaled_dot_product_{k}_attention.default" for k in ("cudnn", "efficient"))
PLAIN = "aten._scaled_dot_product_flash_attention.default"


@rule(*BIASED)
def biased_attention(
    ctx: Context,
    name: str,
    q: Node,
    k: Node,
    v: Node,
    bias: Node | None,
    with_sums: bool,
    *how: Any,
    scale: float | None = None,
) -> Lowered:
    return _of_one_query_alone(ctx, (q, k, v, bias), how, scale)


@rule(PLAIN)
def plain_attention(
    ctx: Context, q: Node, k: Node, v: Node, *how: Any, scale: float | None = None
) -> Lowered:
    return _of_one_query_alone(ctx, (q, k, v, None), how, scale)


def _of_one_query_alone(
    ctx: Context,
    operands: tuple[Node, Node, Node, Node | None],
    how: tuple[Any, ...],
    scale: float | None,
) -> Lowered:
    """Attention by whichever kernel the library prefers, of one query in inference: what is saved
    for the backward is not computed."""
    q, k, v, bias = operands
    if len(q.shape) != 4 or any(how) or not ctx.first_alone or not is_of_one_query(q, k, v):
        raise LoweringError("attention of several queries, or with results for its backward")
    return _result_of_one_query(ctx, q, k, v, bias, scale)


def _result_of_one_query(
    ctx: Context, q: Node, k: Node, v: Node, bias: Node | None, scale: float | None
) -> Lowered:
    """The result alone, by whichever of both is faster."""
    out = split_among_programs(ctx, q, k, v, bias, scale)
    if out is None:
        out, *_ = of_one_query(ctx, q, k, v, bias, scale)
    return (out, *(None for _ in ctx.metas[1:]))


def is_of_one_query(q: Node, k: Node, v: Node) -> bool:
    """Whether attention is products of vectors, that of the only query and that of its weights."""
    sizes = static_sizes((*q.shape, *k.shape, *v.shape))
    return sizes is not None and 0 not in sizes and q.shape[2] == 1 and q.dtype in SUMMED


def split_among_programs(
    ctx: Context, q: Node, k: Node, v: Node, bias: Node | None, scale: float | None
) -> Node | None:
    """The call that `templates/attention/flash_forward.py` takes the place of, with repeated heads
    as they lie in memory; None where sums are as fast."""
    heads, keys = hint(q.shape[1]), hint(k.shape[2])
    width = max(hint(q.shape[3]), hint(v.shape[3]))
    dtypes = {each.dtype for each in (q, k, v, bias) if each is not None}
    if width > WIDEST or len(dtypes) > 1:
        return None
    k, v = _as_stored(ctx, k, v)
    if not tuning_of([q.device]).splits_keys(heads // hint(k.shape[1]), keys, width, q.dtype):
        return None
    if bias is not None:
        own = dims_of(4)[4 - len(bias.shape) :]
        bias = ctx.view(bias, (*q.shape[:3], k.shape[2]), spread(bias.shape, own))
    given, metas = (q, k, v, bias, 0.0, False), (ctx.meta, None)
    out, _ = ctx.call("flambeau_prims.attention.default", given, (("scale", scale),), metas=metas)
    return out


def _as_stored(ctx: Context, k: Node, v: Node) -> tuple[Node, Node]:
    """Keys and values as they lie in memory: not copied, and without the repetitions of their
    heads, if both are repeated alike."""
    k, v = (_copied_from(ctx, node) for node in (k, v))
    heads = hint(k.shape[1])
    for times in (n for n in range(heads, 1, -1) if heads % n == 0):
        keys, values = (_without_repetitions(ctx, node, times) for node in (k, v))
        if keys is not None and values is not None:
            return keys, values
    return k, v


def _copied_from(ctx: Context, node: Node) -> Node:
    """What a node is a copy of, or a view of a copy."""
    define, shown = node.define, dims_of(len(node.shape))
    base, index = (define.base, define.index) if isinstance(define, View) else (node, shown)
    if not isinstance(base.define, Pointwise) or base.define.op != "clone":
        return node
    return _copied_from(ctx, ctx.view(base.define.args[0], node.shape, index))


def _without_repetitions(ctx: Context, node: Node, times: int) -> Node | None:
    """Every `times`-th head, if those between are the same."""
    if not isinstance(node.define, View):
        return None
    ranges, (batch, head, row, column) = dim_ranges(node.shape), dims_of(4)
    first = {head.name: head // times * times}
    if any(simplify(e.substitute(first), ranges) != e for e in node.define.index):
        return None
    shape = (node.shape[0], hint(node.shape[1]) // times, *node.shape[2:])
    return ctx.view(node, shape, (batch, head * times, row, column))


def of_one_query(
    ctx: Context, q: Node, k: Node, v: Node, bias: Node | None, scale: float | None
) -> tuple[Node, Node, Node]:
    """Attention as sums, which read heads that are repeated where they lie, with each row's sum of
    weights and its largest score. What hides all keys leaves 0."""
    batch, heads, row, column = dims_of(4)
    shared = hint(q.shape[1]) // hint(k.shape[1])
    keys = ctx.view(
        k, (*q.shape[:2], k.shape[3], k.shape[2]), (batch, heads // shared, column, row)
    )
    values = ctx.view(v, (*q.shape[:2], *v.shape[2:]), (batch, heads // shared, row, column))
    scores = summed(ctx, q, keys)
    factor = hint(q.shape[3]) ** -0.5 if scale is None else scale
    scores = ctx.point("mul", (scores, ctx.like(factor, scores)))
    if bias is not None:
        own = dims_of(4)[4 - len(bias.shape) :]
        whole = ctx.view(bias, scores.shape, spread(bias.shape, own))
        scores = ctx.point("add", (scores, ctx.cast(whole, scores.dtype)))

    def reduced(kind: str, base: Node) -> Node:
        return ctx.node(base.shape[:3], base.dtype, base.device, Reduction(kind, base, (3,)))

    def repeated(node: Node) -> Node:
        return ctx.view(node, scores.shape, dims_of(3))

    def instead(node: Node, number: float, other: float) -> Node:
        """Other numbers in the place of one, which there are only where a bias hides all keys."""
        if bias is None:
            return node
        found = ctx.point("eq", (node, ctx.like(number, node)), torch.bool)
        return ctx.point("where", (found, ctx.like(other, node), node), node.dtype)

    top = instead(reduced("max", scores), -math.inf, 0.0)
    weights = ctx.point("exp", (ctx.point("sub", (scores, repeated(top))),))
    total = instead(reduced("sum", weights), 0.0, 1.0)
    mixed = summed(ctx, ctx.point("div", (weights, repeated(total))), values)
    out = ctx.meta
    made = "clone" if mixed.dtype == out.dtype else "cast"
    return ctx.result(out, Pointwise(made, (mixed,))), total, top


@rule("attention_backward")
def attention_backward(ctx: Context, *args: Any, scale: Any = None) -> Lowered:
    *operands, logsumexp, bias, dropout_p, is_causal = args
    if operands[0].device.type != "cpu":
        target = "flambeau_prims.attention_backward.default"
        return tuple(ctx.call(target, args, (("scale", scale),)))
    target = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    kwargs = (("attn_mask", bias), ("scale", scale))
    rows = _rows(ctx, *operands)
    return tuple(ctx.call(target, (*rows, logsumexp, dropout_p, is_causal), kwargs))
