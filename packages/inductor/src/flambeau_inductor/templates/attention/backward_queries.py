"""Flash attention backward: gradient of queries, a program per query block.

In: a `Backward` and `Blocks`. Out: a `TritonKernel`. Invariant: keys behind the last one, and those
that a query does not see, have weights of zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.attention.flash_backward import Backward, stored, sums_of_rows
from flambeau_inductor.templates.attention.flash_forward import (
    places,
    precision,
    scores,
    two_key_loops,
    unseen,
)
from flambeau_inductor.templates.attention.operands import Blocked, blocked
from flambeau_inductor.templates.attention.problem import Blocks, padded


def queries_kernel(
    backward: Backward,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "queries",
) -> TritonKernel:
    """The gradient of queries, and `delta`: for each of them the sum over its row of result times
    gradient."""
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
        *two_key_loops(a, blocks, last, lambda masked: _step(text, backward, blocks, masked)),
        *stored(text, a, "grad_q", grad_q, "rows", (length, width), scale, ragged),
    ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def _step(text: Blocked, backward: Backward, blocks: Blocks, masked: bool) -> list[str]:
    """A block of keys; those behind the last one, and those not seen, have weights of zero."""
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
