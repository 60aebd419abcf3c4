"""Attention backward as three Triton kernels: neither scores nor their gradients are in memory.

In: a `Backward` and `Blocks`. Out: `TritonKernel`s, run in this order: `delta` (for each query the
product of its result and its gradient), `keys` (gradients of keys and values, a program for
each block of keys: `flash_keys`), `queries` (gradient of queries: `flash_queries`). Invariant: each
gradient is summed in float32 by one program, in the same order every time; a row whose logarithm is
+inf has no weights.

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
from flambeau_inductor.templates.flash import places
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


def of_rows(text: Blocked, backward: Backward, ragged: bool) -> list[str]:
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
