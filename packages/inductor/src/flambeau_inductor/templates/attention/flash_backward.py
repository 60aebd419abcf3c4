"""Flash attention backward as two Triton kernels.

In: an `Attention`, the gradient of its result, `Blocks`. Out: two kernels: gradients of queries,
with `delta` (for each query the product of result and gradient) and the gradient of each bias;
gradients of keys and values. Invariant: each gradient is summed in float32 by one program, in the
same order every time; keys that a query does not see have weights of zero.

Weights are recomputed from the scores and the logarithms of the rows' sums (T. Dao et al.:
FlashAttention, 2022): of w the weights, g the gradient of the result, w * (g v^T - delta).
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.attention.operands import AttentionText, indented
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
from flambeau_inductor.templates.call_replacement import Buffers
from flambeau_inductor.templates.gemm.operands import masked
from flambeau_inductor.tuning import MEASURED, Tuning


@dataclass(frozen=True, slots=True)
class Backward:
    """`forward` has the operands, the result and the logarithms (`sums`), `grad` is the result's
    gradient; `delta` is memory for a number a query; `grads` are those of q, k and v, `of_bias`
    that of the bias of each score, where it has one."""

    forward: Attention
    grad: Heads
    delta: Rows
    grads: tuple[Heads, Heads, Heads]
    of_bias: Heads | None = None

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


def queries_kernel(
    backward: Backward, blocks: Blocks, buffers: Buffers, name: str = "queries"
) -> TritonKernel:
    """The gradient of queries, and `delta`."""
    a, grad_q = backward.forward, backward.grads[0]
    text = AttentionText(a, blocks, buffers, (*backward.operands, a.out, grad_q, backward.of_bias))
    first, ragged = "tile * QBLOCK", text.ragged("rows")
    delta = f"{text.of_rows(backward.delta)}, delta, rows < {text.length}"
    lines = [
        *text.load("grad", backward.grad, first, "rows", text.out, ragged),
        *text.load("result", a.out, first, "rows", text.out, ragged),
        "delta = tl.sum(result.to(tl.float32) * grad.to(tl.float32), 1)",
        f"tl.store({delta})",
        *text.load("q", a.q, first, "rows", text.width, ragged),
        _sums(text, backward, ragged),
        f"grad_q = tl.zeros([QBLOCK, {padded(text.width)}], tl.float32)",
        *text.two_key_loops(lambda last: _keys_step(text, backward.of_bias, last)),
        _stored(text, "grad_q", grad_q, "rows", text.width, f" * {a.scale!r}"),
    ]
    return text.kernel(name, "rows", lines)


def _keys_step(text: AttentionText, of_bias: Heads | None, last: bool) -> list[str]:
    a, ragged = text.a, last and text.ragged("columns")
    scored, by = text.scores(last)
    stored = []
    if of_bias is not None:
        at, edges = text.grid(of_bias, "rows", "columns"), text.score_edges(last)
        mask = f", {' & '.join(edges)}" if edges else ""
        stored = [f"tl.store({at}, change.to({text.dtype}){mask})"]
    weights = f"scores{by} - sums[:, None]" if a.bias is None else f"(scores - sums[:, None]){by}"
    return [
        "columns = start + tl.arange(0, KBLOCK)",
        *text.load("keys", a.k, "start", "columns", text.width, ragged),
        f"scores = tl.dot(q, keys.T, {text.precision})",
        *scored,
        *(text.unseen() if last else ()),
        f"weights = tl.exp2({weights})",
        *text.load("v", a.v, "start", "columns", text.out, ragged),
        f"change = tl.dot(grad, v.T, {text.precision})",
        "change = weights * (change - delta[:, None])",
        *stored,
        f"grad_q = tl.dot(change.to({text.dtype}), keys, grad_q, {text.precision})",
    ]


def keys_kernel(
    backward: Backward, blocks: Blocks, buffers: Buffers, name: str = "keys"
) -> TritonKernel:
    """Gradients of keys and values."""
    a, (_, grad_k, grad_v) = backward.forward, backward.grads
    text = AttentionText(a, blocks, buffers, (*backward.operands, grad_k, grad_v))
    first, ragged = "tile * KBLOCK", text.ragged("columns")
    lines = [
        *text.load("k", a.k, first, "columns", text.width, ragged),
        *text.load("v", a.v, first, "columns", text.out, ragged),
        f"grad_k = tl.zeros([KBLOCK, {padded(text.width)}], tl.float32)",
        f"grad_v = tl.zeros([KBLOCK, {padded(text.out)}], tl.float32)",
    ]
    length = text.length
    whole, begin = length // blocks.queries * blocks.queries, "0"
    if a.causal:  # the first queries that see a key of this block, then those that see all
        lines += [
            f"first = tl.minimum({whole}, tile * KBLOCK // QBLOCK * QBLOCK)",
            f"seen = tl.minimum({whole}, ((tile + 1) * KBLOCK + QBLOCK - 1) // QBLOCK * QBLOCK)",
            "for start in range(first, seen, QBLOCK):",
            *_queries_step(text, backward, diagonal=True, ragged=False),
        ]
        begin = "seen"
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
        _stored(text, "grad_k", grad_k, "columns", text.width, f" * {a.scale!r}"),
        _stored(text, "grad_v", grad_v, "columns", text.out, ""),
    ]
    return text.kernel(name, "columns", lines)


def _queries_step(
    text: AttentionText, backward: Backward, *, diagonal: bool, ragged: bool
) -> list[str]:
    a, delta, by = text.a, text.of_rows(backward.delta), ""
    mask = f", rows < {text.length}, other=0" if ragged else ""
    lines = [
        "rows = start + tl.arange(0, QBLOCK)",
        *text.load("q", a.q, "start", "rows", text.width, ragged),
        *text.load("grad", backward.grad, "start", "rows", text.out, ragged),
        _sums(text, backward, ragged),
        f"delta = tl.load({delta}{mask})",
        f"weights = tl.dot(k, q.T, {text.precision}) * {a.scale * (1 if a.bias else LOG2_E)!r}",
    ]
    if a.bias is not None:
        masks = [f"(rows < {text.length})[None, :]"] if ragged else []
        masks += [f"(columns < {text.keys})[:, None]"] if text.ragged("columns") else []
        at = text.grid(a.bias, "rows", "columns", turned=".T")
        lines += [f"bias = tl.load({at}{masked(masks)})", "weights += bias.to(tl.float32)"]
        by = f" * {LOG2_E!r}"
    lines.append(f"weights = tl.exp2((weights - sums[None, :]){by})")
    if diagonal:
        lines.append("weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)")
    lines += [
        f"grad_v = tl.dot(weights.to({text.dtype}), grad, grad_v, {text.precision})",
        f"change = tl.dot(v, grad.T, {text.precision})",
        "change = weights * (change - delta[None, :])",
        f"grad_k = tl.dot(change.to({text.dtype}), q, grad_k, {text.precision})",
    ]
    return indented(lines)


def _sums(text: AttentionText, backward: Backward, ragged: bool) -> str:
    """`sums` of the rows, in powers of two unless there is a bias; +inf after the last one."""
    sums = backward.forward.sums
    assert sums is not None
    mask = f", rows < {text.length}, other=float('inf')" if ragged else ""
    by = f" * {LOG2_E!r}" if backward.forward.bias is None else ""
    return f"sums = tl.load({text.of_rows(sums)}{mask}){by}"


def _stored(text: AttentionText, name: str, into: Heads, along: str, width: int, scale: str) -> str:
    """The line that writes a gradient."""
    inner = f"tl.arange(0, {padded(width)})"
    masks = " & ".join(text.edges(along, inner, width, text.ragged(along)))
    at, mask = text.grid(into, along, inner), f", {masks}" if masks else ""
    return f"tl.store({at}, ({name}{scale}).to({text.dtype}){mask})"
