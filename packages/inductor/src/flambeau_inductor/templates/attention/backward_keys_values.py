"""Flash attention backward: gradients of keys and values, a program per key block.

In: a `Backward` and `Blocks`. Out: a `TritonKernel`. Invariant: everything here is turned: keys
down, queries across; columns behind the last key are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.attention.flash_backward import (
    Backward,
    delta_of_rows,
    stored,
    sums_of_rows,
)
from flambeau_inductor.templates.attention.flash_forward import indented, places, precision
from flambeau_inductor.templates.attention.operands import Blocked, blocked
from flambeau_inductor.templates.attention.problem import LOG2_E, Blocks, padded


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
    if a.causal:  # the first queries that see a key of this block, then those that see all
        lines += [
            f"first = tl.minimum({whole}, tile * KBLOCK // QBLOCK * QBLOCK)",
            f"seen = tl.minimum({whole}, ((tile + 1) * KBLOCK + QBLOCK - 1) // QBLOCK * QBLOCK)",
            "for start in range(first, seen, QBLOCK):",
            *_step(text, backward, diagonal=True, ragged=False),
        ]
    begin = "seen" if a.causal else "0"
    lines += [
        f"for start in range({begin}, {whole}, QBLOCK):",
        *_step(text, backward, diagonal=False, ragged=False),
    ]
    if whole != length:
        lines += [
            f"for start in range({whole}, {length}, QBLOCK):",
            *_step(text, backward, diagonal=a.causal, ragged=True),
        ]
    lines += [
        *stored(text, a, "grad_k", grad_k, "columns", (keys, width), f" * {a.scale!r}", ragged),
        *stored(text, a, "grad_v", grad_v, "columns", (keys, out), "", ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _step(text: Blocked, backward: Backward, *, diagonal: bool, ragged: bool) -> list[str]:
    """A block of queries."""
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
        mask = f", {' & '.join(masks)}, other=0" if masks else ""
        lines += [
            f"bias = tl.load({text.base(a.bias, 'head')} + (rows * {a.bias.strides[2]})[None, :]"
            f" + (columns * {a.bias.strides[3]})[:, None]{mask})",
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
