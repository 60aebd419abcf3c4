"""Attention backward as three Triton kernels: neither scores nor their gradients are in memory.

In: a `Backward` and `Blocks`. Out: `TritonKernel`s, run in this order: `delta` (for each query the
product of its result and its gradient), `keys` (gradients of keys and values, a program for
each block of keys), `queries` (gradient of queries). Invariant: each gradient is summed in float32
by one program, in the same order every time; a row whose logarithm is +inf has no weights.

Weights are computed again from the scores and the logarithms of the rows' sums (T. Dao et al.:
FlashAttention, 2022). With w the weights and g the gradient of the result, that of the scores is
w * (g v^T - delta).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.attention import (
    LOG2_E,
    Attention,
    Blocks,
    Heads,
    Rows,
    fitting,
    padded,
)
from flambeau_inductor.templates.flash import places, precision, scores
from flambeau_inductor.templates.heads import Blocked, blocked


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
        """What both kernels of gradients read."""
        a = self.forward
        assert a.sums is not None
        read = (a.q, a.k, a.v, *([a.bias] if a.bias is not None else []))
        return (*read, self.grad, a.sums, self.delta)


def backward_blocks(attention: Attention, described: bool) -> tuple[tuple[Blocks, Blocks], ...]:
    """Blocks of `keys` and of `queries` that are worth trying."""
    width = max(attention.sizes[-2:])
    pairs: tuple[tuple[Blocks, Blocks], ...]
    if attention.dtype == torch.float32 or width > 128:
        pairs = ((Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 2)),)
    elif width > 64:
        pairs = (
            (Blocks(64, 64, 4, 2, True), Blocks(128, 32, 8, 3, True)),
            (Blocks(64, 64, 4, 2, True), Blocks(64, 64, 4, 2, True)),
            (Blocks(64, 128, 8, 2), Blocks(64, 64, 4, 2)),
        )
    else:
        pairs = (
            (Blocks(64, 64, 4, 3, True), Blocks(64, 64, 4, 3)),
            (Blocks(32, 64, 4, 3, True), Blocks(64, 64, 4, 3)),
            (Blocks(64, 64, 4, 2), Blocks(64, 64, 4, 2)),
        )
    small = (Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 2))
    fit = [p for p in pairs if all(b in fitting(attention, (b,), described) for b in p)]
    return tuple(fit) or (small,)


def delta_kernel(
    backward: Backward,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "delta",
) -> TritonKernel:
    """For each query the sum over its row of result times gradient."""
    a, delta = backward.forward, backward.delta
    batch, heads, _, length, _, _, out = a.sizes
    blocks = Blocks(32, 32, 4, 2)
    text = blocked(a, blocks, (a.out, backward.grad, delta), dtypes)
    tiles = -(-length // blocks.queries)
    at, sizes = ("head", "tile * QBLOCK", "rows"), (heads, length, out)
    lines = [
        *places(a, tiles, "QBLOCK", numels),
        *text.block("result", a.out, at, sizes, ragged=True),
        *text.block("grad", backward.grad, at, sizes, ragged=True),
        "delta = tl.sum(result.to(tl.float32) * grad.to(tl.float32), 1)",
        f"delta_at = {text.base(delta, 'head')} + rows * {delta.strides[2]}",
        f"tl.store(delta_at, delta, rows < {length})",
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def keys_kernel(
    backward: Backward,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "keys",
) -> TritonKernel:
    """Gradients of keys and values. Columns behind the last key are not stored."""
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
    step = _keys_step
    if a.causal:  # the first queries that see a key of this block, then those that see all
        lines += [
            f"first = tl.minimum({whole}, tile * KBLOCK // QBLOCK * QBLOCK)",
            f"seen = tl.minimum({whole}, ((tile + 1) * KBLOCK + QBLOCK - 1) // QBLOCK * QBLOCK)",
            "for start in range(first, seen, QBLOCK):",
            *step(text, backward, diagonal=True, ragged=False),
        ]
    begin = "seen" if a.causal else "0"
    lines += [
        f"for start in range({begin}, {whole}, QBLOCK):",
        *step(text, backward, diagonal=False, ragged=False),
    ]
    if whole != length:
        lines += [
            f"for start in range({whole}, {length}, QBLOCK):",
            *step(text, backward, diagonal=a.causal, ragged=True),
        ]
    lines += [
        *_stored(text, a, "grad_k", grad_k, "columns", (keys, width), f" * {a.scale!r}", ragged),
        *_stored(text, a, "grad_v", grad_v, "columns", (keys, out), "", ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _keys_step(text: Blocked, backward: Backward, *, diagonal: bool, ragged: bool) -> list[str]:
    """A block of queries; everything here is turned: keys down, queries across."""
    a = backward.forward
    _, heads, _, length, keys, width, out = a.sizes
    at = ("head", "start", "rows")
    how = f"input_precision={precision(a)!r}"
    lines = [
        "rows = start + tl.arange(0, QBLOCK)",
        *text.block("q", a.q, at, (heads, length, width), ragged=ragged),
        *text.block("grad", backward.grad, at, (heads, length, out), ragged=ragged),
        *_of_rows(text, backward, ragged),
        f"weights = tl.dot(k, q.T, {how}) * {a.scale * LOG2_E!r}",
    ]
    if a.bias is not None:
        masks = [f"(rows < {length})[None, :]"] if ragged else []
        masks += [f"(columns < {keys})[:, None]"] if keys % text.keys else []
        mask = f", {' & '.join(masks)}, other=0" if masks else ""
        lines += [
            f"bias = tl.load({text.base(a.bias, 'head')} + (rows * {a.bias.strides[2]})[None, :]"
            f" + (columns * {a.bias.strides[3]})[:, None]{mask})",
            f"weights += bias.to(tl.float32) * {LOG2_E!r}",
        ]
    lines.append("weights = tl.exp2(weights - sums[None, :])")
    if diagonal:
        lines.append("weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)")
    half = register(a.dtype)
    lines += [
        f"grad_v = tl.dot(weights.to({half}), grad, grad_v, {how})",
        f"change = tl.dot(v, grad.T, {how})",
        "change = weights * (change - delta[None, :])",
        f"grad_k = tl.dot(change.to({half}), q, grad_k, {how})",
    ]
    return [f"    {line}" for line in lines]


def queries_kernel(
    backward: Backward,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "queries",
) -> TritonKernel:
    """The gradient of queries."""
    a = backward.forward
    batch, heads, _, length, keys, width, out = a.sizes
    grad_q = backward.grads[0]
    text = blocked(a, blocks, (*backward.operands, grad_q), dtypes)
    tiles = -(-length // blocks.queries)
    ragged = length % blocks.queries != 0
    at = ("head", "tile * QBLOCK", "rows")
    lines = [
        *places(a, tiles, "QBLOCK", numels, last_first=a.causal),
        *text.block("q", a.q, at, (heads, length, width), ragged=ragged),
        *text.block("grad", backward.grad, at, (heads, length, out), ragged=ragged),
        *_of_rows(text, backward, ragged),
        f"grad_q = tl.zeros([QBLOCK, {padded(width)}], tl.float32)",
    ]
    whole = keys // blocks.keys * blocks.keys
    last = f"tl.minimum({keys}, (tile + 1) * QBLOCK)" if a.causal else str(keys)
    before = f"tl.minimum({whole}, tile * QBLOCK // KBLOCK * KBLOCK)" if a.causal else str(whole)
    step = _queries_step
    if whole or a.causal:
        lines += [f"for start in range(0, {before}, KBLOCK):", *step(text, backward, blocks, False)]
    if a.causal or whole != keys:
        lines += [f"for start in range({before}, {last}, KBLOCK):"]
        lines += step(text, backward, blocks, True)
    by = f" * {a.scale!r}"
    lines += _stored(text, a, "grad_q", grad_q, "rows", (length, width), by, ragged)
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _queries_step(text: Blocked, backward: Backward, blocks: Blocks, masked: bool) -> list[str]:
    """A block of keys; those behind the last one, and those not seen, have weights of zero."""
    a = backward.forward
    _, heads, _, _, keys, width, out = a.sizes
    ragged = masked and keys % blocks.keys != 0
    at = ("head", "start", "columns")
    how = f"input_precision={precision(a)!r}"
    scored, factor = scores(text, a, blocks, masked)
    by = "" if factor == 1 else f" * {factor!r}"
    lines = [
        "columns = start + tl.arange(0, KBLOCK)",
        *text.block("keys", a.k, at, (heads, keys, width), ragged=ragged),
        "k = keys.T",
        *scored,
        f"weights = tl.exp2(scores{by} - sums[:, None])",
        *text.block("v", a.v, at, (heads, keys, out), ragged=ragged),
        f"change = tl.dot(grad, v.T, {how})",
        "change = weights * (change - delta[:, None])",
        f"grad_q = tl.dot(change.to({register(a.dtype)}), keys, grad_q, {how})",
    ]
    return [f"    {line}" for line in lines]


def _of_rows(text: Blocked, backward: Backward, ragged: bool) -> list[str]:
    """`sums`, in powers of two, and `delta` of the rows; behind the last one nothing has weight."""
    sums, delta = backward.forward.sums, backward.delta
    assert sums is not None
    length = backward.forward.sizes[3]
    nothing = f", rows < {length}, other=float('inf')" if ragged else ""
    zero = f", rows < {length}, other=0" if ragged else ""
    return [
        f"sums = tl.load({text.base(sums, 'head')} + rows * {sums.strides[2]}{nothing})",
        f"sums = sums * {LOG2_E!r}",
        f"delta = tl.load({text.base(delta, 'head')} + rows * {delta.strides[2]}{zero})",
    ]


def _stored(
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
