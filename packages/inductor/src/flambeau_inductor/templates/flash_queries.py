"""The gradient of attention's queries as one Triton kernel, a program for a block of queries.

In: a `Backward` and `Blocks`. Out: a `TritonKernel`. Invariant: keys behind the last one, and those
that a query does not see, have weights of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.ahead import Walk, held
from flambeau_inductor.templates.attention import Attention, Blocks, padded
from flambeau_inductor.templates.flash import places, precision, scores, unseen, walked_twice
from flambeau_inductor.templates.flash_backward import Backward, of_rows, stored
from flambeau_inductor.templates.heads import Blocked, blocked


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
    last = f"tl.minimum({keys}, (tile + 1) * QBLOCK)" if a.causal else str(keys)
    walk = _ahead if blocks.ahead else _in_turn
    lines = [
        *places(a, tiles, "QBLOCK", numels, last_first=a.causal),
        *text.block("q", a.q, at, (heads, length, width), ragged=ragged),
        *text.block("grad", backward.grad, at, (heads, length, out), ragged=ragged),
        *(held(("q", "grad"), "rows", length) if blocks.held else ()),
        *of_rows(text, backward, ragged),
        f"grad_q = tl.zeros([QBLOCK, {padded(width)}], tl.float32)",
        *walk(text, backward, blocks, last),
        *stored(text, a, "grad_q", grad_q, "rows", (length, width), f" * {a.scale!r}", ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _in_turn(text: Blocked, backward: Backward, blocks: Blocks, last: str) -> list[str]:
    a = backward.forward

    def step(masked: bool) -> Sequence[str]:
        return [
            *_asked(text, a, "scores", masked),
            *_weights(text, a, blocks, masked, unseen(a, blocks) if masked else []),
            *_changed(text, a, "start", masked),
            *_of_queries(a),
        ]

    return walked_twice(a, blocks, last, step)


def _ahead(text: Blocked, backward: Backward, blocks: Blocks, last: str) -> list[str]:
    a = backward.forward
    columns = "columns = before + tl.arange(0, KBLOCK)"
    walk = Walk(
        "KBLOCK",
        "0",
        last,
        asked=lambda: _asked(text, a, "following", True),
        early=lambda masked: [columns, *_changed(text, a, "before", masked)],
        used=lambda masked: [
            columns,
            *_weights(text, a, blocks, masked, []),
            *_keys(text, a, "before", masked),
            *_of_queries(a),
        ],
        at_last=[columns, *unseen(a, blocks)],
    )
    return walk.lines()


def _asked(text: Blocked, a: Attention, name: str, ragged: bool) -> list[str]:
    """The products of the queries and the keys that begin at `start`."""
    return [
        "columns = start + tl.arange(0, KBLOCK)",
        *_keys(text, a, "start", ragged),
        f"{name} = tl.dot(q, keys.T, {_how(a)})",
    ]


def _keys(text: Blocked, a: Attention, at: str, ragged: bool) -> list[str]:
    _, heads, _, _, keys, width, _ = a.sizes
    ragged = ragged and keys % text.keys != 0
    return text.block("keys", a.k, ("head", at, "columns"), (heads, keys, width), ragged=ragged)


def _weights(
    text: Blocked, a: Attention, blocks: Blocks, masked: bool, hidden: Sequence[str]
) -> list[str]:
    """`weights` of `scores`; the keys are `columns`."""
    scored, factor = scores(text, a, blocks, masked)
    by = "" if factor == 1 else f" * {factor!r}"
    return [*scored, *hidden, f"weights = tl.exp2(scores{by} - sums[:, None])"]


def _changed(text: Blocked, a: Attention, at: str, ragged: bool) -> list[str]:
    _, heads, _, _, keys, _, out = a.sizes
    ragged = ragged and keys % text.keys != 0
    return [
        *text.block("v", a.v, ("head", at, "columns"), (heads, keys, out), ragged=ragged),
        f"change = tl.dot(grad, v.T, {_how(a)})",
    ]


def _of_queries(a: Attention) -> list[str]:
    return [
        "change = weights * (change - delta[:, None])",
        f"grad_q = tl.dot(change.to({register(a.dtype)}), keys, grad_q, {_how(a)})",
    ]


def _how(a: Attention) -> str:
    return f"input_precision={precision(a)!r}"
