"""Gradients of attention's keys and values as one Triton kernel, a program for a block of keys.

In: a `Backward` and `Blocks`. Out: a `TritonKernel`. Invariant: everything here is turned: keys
down, queries across; columns behind the last key are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.ahead import Walk, held
from flambeau_inductor.templates.attention import LOG2_E, Attention, Blocks, padded
from flambeau_inductor.templates.flash import indented, places, precision
from flambeau_inductor.templates.flash_backward import Backward, of_rows, stored
from flambeau_inductor.templates.heads import Blocked, blocked


def keys_kernel(
    backward: Backward,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "keys",
) -> TritonKernel:
    """Gradients of keys and values. Columns behind the last key are not stored."""
    a = backward.forward
    batch, heads, _, _, keys, width, out = a.sizes
    _, grad_k, grad_v = backward.grads
    text = blocked(a, blocks, (*backward.operands, grad_k, grad_v), dtypes)
    tiles = -(-keys // blocks.keys)
    ragged = keys % blocks.keys != 0
    at = ("head", "tile * KBLOCK", "columns")
    lines = [
        *places(a, tiles, "KBLOCK", numels),
        *text.block("k", a.k, at, (heads, keys, width), ragged=ragged),
        *text.block("v", a.v, at, (heads, keys, out), ragged=ragged),
        *(held(("k", "v"), "columns", keys) if blocks.held else ()),
        f"grad_k = tl.zeros([KBLOCK, {padded(width)}], tl.float32)",
        f"grad_v = tl.zeros([KBLOCK, {padded(out)}], tl.float32)",
        *(_walk(text, backward) if blocks.ahead else _in_turn(text, backward)),
        *stored(text, a, "grad_k", grad_k, "columns", (keys, width), f" * {a.scale!r}", ragged),
        *stored(text, a, "grad_v", grad_v, "columns", (keys, out), "", ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _in_turn(text: Blocked, backward: Backward) -> list[str]:
    """If causal, the first queries that see a key of this block, then those that see all; then the
    last ones, which may be fewer than a block."""
    a = backward.forward
    length = a.sizes[3]
    whole = length // text.queries * text.queries

    def step(diagonal: bool, ragged: bool) -> list[str]:
        zeros = "weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)"
        lines = [
            *_asked(text, backward, "scores", ragged),
            *_gradients(text, backward, "start", ragged),
            *_weights(text, backward, ragged),
            *([zeros] if diagonal else []),
            _of_values(a),
            _changed(a),
            *_of_keys(a),
        ]
        return indented(lines)

    lines = []
    if a.causal:
        lines += [
            f"first = tl.minimum({whole}, tile * KBLOCK // QBLOCK * QBLOCK)",
            f"seen = tl.minimum({whole}, ((tile + 1) * KBLOCK + QBLOCK - 1) // QBLOCK * QBLOCK)",
            "for start in range(first, seen, QBLOCK):",
            *step(diagonal=True, ragged=False),
        ]
    begin = "seen" if a.causal else "0"
    lines += [
        f"for start in range({begin}, {whole}, QBLOCK):",
        *step(diagonal=False, ragged=False),
    ]
    if whole != length:
        lines += [
            f"for start in range({whole}, {length}, QBLOCK):",
            *step(diagonal=a.causal, ragged=True),
        ]
    return lines


def _walk(text: Blocked, backward: Backward) -> list[str]:
    """All of them, with the next scores asked for ahead; if causal, what is not seen is in the
    first block."""
    a = backward.forward
    _, heads, _, length, _, width, _ = a.sizes
    rows = "rows = before + tl.arange(0, QBLOCK)"
    seen = "scores = tl.where(rows[None, :] >= columns[:, None], scores, float('-inf'))"
    odd = length % text.queries != 0
    at = ("head", "before", "rows")
    walk = Walk(
        "QBLOCK",
        "first",
        str(length),
        asked=lambda: _asked(text, backward, "following", odd),
        early=lambda last: [
            rows,
            *_gradients(text, backward, "before", last and odd),
            _changed(a),
        ],
        used=lambda last: [
            rows,
            *text.block("q", a.q, at, (heads, length, width), ragged=last and odd),
            *_weights(text, backward, last and odd),
            _of_values(a),
            *_of_keys(a),
        ],
        at_first=[rows, seen] if a.causal else [],
    )
    return [f"first = {'tile * KBLOCK // QBLOCK * QBLOCK' if a.causal else '0'}", *walk.lines()]


def _asked(text: Blocked, backward: Backward, name: str, ragged: bool) -> list[str]:
    """The products of the keys and the queries that begin at `start`."""
    a = backward.forward
    _, heads, _, length, _, width, _ = a.sizes
    return [
        "rows = start + tl.arange(0, QBLOCK)",
        *text.block("q", a.q, ("head", "start", "rows"), (heads, length, width), ragged=ragged),
        f"{name} = tl.dot(k, q.T, {_how(a)})",
    ]


def _gradients(text: Blocked, backward: Backward, at: str, ragged: bool) -> list[str]:
    """Those of the results of the queries `at`."""
    _, heads, _, length, _, _, out = backward.forward.sizes
    sizes = (heads, length, out)
    return text.block("grad", backward.grad, ("head", at, "rows"), sizes, ragged=ragged)


def _weights(text: Blocked, backward: Backward, ragged: bool) -> list[str]:
    """`weights` of `scores`; the queries are `rows`."""
    a = backward.forward
    *_, length, keys, _, _ = a.sizes
    lines = [
        *of_rows(text, backward, ragged),
        f"weights = scores * {a.scale * LOG2_E!r}",
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
    return [*lines, "weights = tl.exp2(weights - sums[None, :])"]


def _of_values(a: Attention) -> str:
    return f"grad_v = tl.dot(weights.to({register(a.dtype)}), grad, grad_v, {_how(a)})"


def _changed(a: Attention) -> str:
    return f"change = tl.dot(v, grad.T, {_how(a)})"


def _of_keys(a: Attention) -> list[str]:
    return [
        "change = weights * (change - delta[None, :])",
        f"grad_k = tl.dot(change.to({register(a.dtype)}), q, grad_k, {_how(a)})",
    ]


def _how(a: Attention) -> str:
    return f"input_precision={precision(a)!r}"
