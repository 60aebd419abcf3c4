"""Flash attention backward as two Triton kernels.

In: an `Attention`, the gradient of its result, `Blocks`. Out: two kernels: gradients of queries,
with `delta` (for each query the product of result and gradient); gradients of keys and values.
Invariant: each gradient is summed in float32 by one program, in the same order every time; keys
that a query does not see have weights of zero.

Weights are recomputed from the scores and the logarithms of the rows' sums (T. Dao et al.:
FlashAttention, 2022): of w the weights, g the gradient of the result, w * (g v^T - delta).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.attention.flash_forward import (
    indented,
    places,
    precision,
    scores,
    two_key_loops,
    unseen,
)
from flambeau_inductor.templates.attention.operands import Blocked, blocked
from flambeau_inductor.templates.attention.problem import (
    LOG2_E,
    Attention,
    Blocks,
    Heads,
    Rows,
    block,
    fitting,
    in_shared,
    of_heads,
    padded,
)
from flambeau_inductor.templates.gemm.operands import masked
from flambeau_inductor.tuning import MEASURED, Tuning


@dataclass(frozen=True, slots=True)
class Backward:
    """`forward` has the operands, the result and the logarithms (`sums`), `grad` is the result's
    gradient; `delta` is memory for a number a query; `grads` are those of q, k and v."""

    forward: Attention
    grad: Heads
    delta: Rows
    grads: tuple[Heads, Heads, Heads]

    @property
    def operands(self) -> tuple[Heads | Rows, ...]:
        a = self.forward
        assert a.sums is not None
        read = (a.q, a.k, a.v, *([a.bias] if a.bias is not None else []))
        return (*read, self.grad, a.sums, self.delta)


def backward_blocks(
    attention: Attention, described: bool, tuning: Tuning = MEASURED
) -> tuple[tuple[Blocks, Blocks], ...]:
    """Blocks of `keys` and of `queries` that are worth trying."""
    table = of_heads(tuning.attention_backward_blocks, attention)
    pairs = [(block(keys), block(queries)) for keys, queries in table]
    small = (Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 2))
    fit = []
    for pair in (*pairs, small):
        keys = in_shared(attention, pair[0], tuning, keys_stay=True)
        queries = in_shared(attention, pair[1], tuning)
        if keys is None or queries is None:
            continue
        if all(b in fitting(attention, (b,), described, tuning) for b in (keys, queries)):
            fit.append((keys, queries))
    return tuple(p for p in fit if p != small) or (small,)


def sums_of_rows(text: Blocked, backward: Backward, ragged: bool) -> str:
    """`sums` of the rows, in powers of two unless there is a bias; +inf after the last one."""
    sums = backward.forward.sums
    assert sums is not None
    length = backward.forward.sizes[3]
    mask = f", rows < {length}, other=float('inf')" if ragged else ""
    at = f"{text.base(sums, 'head')} + rows * {sums.strides[2]}"
    by = f" * {LOG2_E!r}" if backward.forward.bias is None else ""
    return f"sums = tl.load({at}{mask}){by}"


def delta_of_rows(text: Blocked, backward: Backward, ragged: bool) -> str:
    delta = backward.delta
    mask = f", rows < {backward.forward.sizes[3]}, other=0" if ragged else ""
    return f"delta = tl.load({text.base(delta, 'head')} + rows * {delta.strides[2]}{mask})"


def stored(
    text: Blocked,
    attention: Attention,
    name: str,
    into: Heads,
    rows: str,
    sizes: tuple[int, int],
    scale: str,
    ragged: bool,
) -> list[str]:
    """Lines that write a gradient."""
    length, width = sizes
    inner = f"tl.arange(0, {padded(width)})"
    masks = [f"({rows} < {length})[:, None]"] if ragged else []
    masks += [f"({inner} < {width})[None, :]"] if padded(width) != width else []
    mask = f", {' & '.join(masks)}" if masks else ""
    at = (
        f"{text.base(into, 'head')} + ({rows} * {into.strides[2]})[:, None]"
        f" + ({inner} * {into.strides[3]})[None, :]"
    )
    return [f"tl.store({at}, ({name}{scale}).to({register(attention.dtype)}){mask})"]


def queries_kernel(
    backward: Backward,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "queries",
) -> TritonKernel:
    """The gradient of queries, and `delta`."""
    a, delta = backward.forward, backward.delta
    batch, heads, _, length, keys, width, out = a.sizes
    grad_q = backward.grads[0]
    text = blocked(a, blocks, (*backward.operands, a.out, grad_q), dtypes)
    tiles = -(-length // blocks.queries)
    ragged = length % blocks.queries != 0
    at, sizes = ("head", "tile * QBLOCK", "rows"), (heads, length, out)
    last = f"tl.minimum({keys}, (tile + 1) * QBLOCK)" if a.causal else str(keys)
    scale = f" * {a.scale!r}"
    lines = [
        *places(a, tiles, "QBLOCK", numels, last_first=a.causal),
        *text.block("grad", backward.grad, at, sizes, ragged=ragged),
        *text.block("result", a.out, at, sizes, ragged=ragged),
        "delta = tl.sum(result.to(tl.float32) * grad.to(tl.float32), 1)",
        f"tl.store({text.base(delta, 'head')} + rows * {delta.strides[2]}, delta, rows < {length})",
        *text.block("q", a.q, at, (heads, length, width), ragged=ragged),
        sums_of_rows(text, backward, ragged),
        f"grad_q = tl.zeros([QBLOCK, {padded(width)}], tl.float32)",
        *two_key_loops(a, blocks, last, lambda masked: _keys_step(text, backward, blocks, masked)),
        *stored(text, a, "grad_q", grad_q, "rows", (length, width), scale, ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _keys_step(text: Blocked, backward: Backward, blocks: Blocks, masked: bool) -> list[str]:
    a = backward.forward
    _, heads, _, _, keys, width, out = a.sizes
    ragged = masked and keys % blocks.keys != 0
    at = ("head", "start", "columns")
    how = f"input_precision={precision(a)!r}"
    scored, factor = scores(text, a, blocks, masked)
    by = "" if factor == 1 else f" * {factor!r}"
    weights = f"weights = tl.exp2(scores{by} - sums[:, None])"
    if a.bias is not None:
        weights = f"weights = tl.exp2((scores - sums[:, None]){by})"
    return [
        "columns = start + tl.arange(0, KBLOCK)",
        *text.block("keys", a.k, at, (heads, keys, width), ragged=ragged),
        f"scores = tl.dot(q, keys.T, {how})",
        *scored,
        *(unseen(a, blocks) if masked else ()),
        weights,
        *text.block("v", a.v, at, (heads, keys, out), ragged=ragged),
        f"change = tl.dot(grad, v.T, {how})",
        "change = weights * (change - delta[:, None])",
        f"grad_q = tl.dot(change.to({register(a.dtype)}), keys, grad_q, {how})",
    ]


def keys_kernel(
    backward: Backward,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "keys",
) -> TritonKernel:
    """Gradients of keys and values."""
    a = backward.forward
    batch, heads, _, length, keys, width, out = a.sizes
    _, grad_k, grad_v = backward.grads
    text = blocked(a, blocks, (*backward.operands, grad_k, grad_v), dtypes)
    tiles = -(-keys // blocks.keys)
    ragged = keys % blocks.keys != 0
    at = ("head", "tile * KBLOCK", "columns")
    lines = [
        *places(a, tiles, "KBLOCK", numels),
        *text.block("k", a.k, at, (heads, keys, width), ragged=ragged),
        *text.block("v", a.v, at, (heads, keys, out), ragged=ragged),
        f"grad_k = tl.zeros([KBLOCK, {padded(width)}], tl.float32)",
        f"grad_v = tl.zeros([KBLOCK, {padded(out)}], tl.float32)",
    ]
    whole = length // blocks.queries * blocks.queries
    if a.causal:  # the first queries that see a key of this block, then those that see all
        lines += [
            f"first = tl.minimum({whole}, tile * KBLOCK // QBLOCK * QBLOCK)",
            f"seen = tl.minimum({whole}, ((tile + 1) * KBLOCK + QBLOCK - 1) // QBLOCK * QBLOCK)",
            "for start in range(first, seen, QBLOCK):",
            *_queries_step(text, backward, diagonal=True, ragged=False),
        ]
    begin = "seen" if a.causal else "0"
    lines += [
        f"for start in range({begin}, {whole}, QBLOCK):",
        *_queries_step(text, backward, diagonal=False, ragged=False),
    ]
    if whole != length:
        lines += [
            f"for start in range({whole}, {length}, QBLOCK):",
            *_queries_step(text, backward, diagonal=a.causal, ragged=True),
        ]
    lines += [
        *stored(text, a, "grad_k", grad_k, "columns", (keys, width), f" * {a.scale!r}", ragged),
        *stored(text, a, "grad_v", grad_v, "columns", (keys, out), "", ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _queries_step(text: Blocked, backward: Backward, *, diagonal: bool, ragged: bool) -> list[str]:
    a = backward.forward
    _, heads, _, length, keys, width, out = a.sizes
    at = ("head", "start", "rows")
    how = f"input_precision={precision(a)!r}"
    lines = [
        "rows = start + tl.arange(0, QBLOCK)",
        *text.block("q", a.q, at, (heads, length, width), ragged=ragged),
        *text.block("grad", backward.grad, at, (heads, length, out), ragged=ragged),
        sums_of_rows(text, backward, ragged),
        delta_of_rows(text, backward, ragged),
        f"weights = tl.dot(k, q.T, {how}) * {a.scale * (1 if a.bias else LOG2_E)!r}",
    ]
    by = ""
    if a.bias is not None:
        masks = [f"(rows < {length})[None, :]"] if ragged else []
        masks += [f"(columns < {keys})[:, None]"] if keys % text.keys else []
        lines += [
            f"bias = tl.load({text.base(a.bias, 'head')} + (rows * {a.bias.strides[2]})[None, :]"
            f" + (columns * {a.bias.strides[3]})[:, None]{masked(masks)})",
            "weights += bias.to(tl.float32)",
        ]
        by = f" * {LOG2_E!r}"
    lines.append(f"weights = tl.exp2((weights - sums[None, :]){by})")
    if diagonal:
        lines.append("weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)")
    half = register(a.dtype)
    lines += [
        f"grad_v = tl.dot(weights.to({half}), grad, grad_v, {how})",
        f"change = tl.dot(v, grad.T, {how})",
        "change = weights * (change - delta[None, :])",
        f"grad_k = tl.dot(change.to({half}), q, grad_k, {how})",
    ]
    return indented(lines)
