"""Flash attention backward as two Triton kernels.

In: an `Attention`, the gradient of its result. Out: `Backward`, and lines of both kernels, which
run in this order: `flash_queries` (the gradient of queries, and `delta`: for each query the product
of its result and its gradient), `flash_keys` (gradients of keys and values, a program for each
block of keys). Invariant: each gradient is summed in float32 by one program, in the same order
every time; a row whose logarithm is +inf has no weights.

Weights are computed again from the scores and the logarithms of the rows' sums (T. Dao et al.:
FlashAttention, 2022). With w the weights and g the gradient of the result, that of the scores is
w * (g v^T - delta).
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.templates.attention.operands import Blocked
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
        """What both kernels of gradients read."""
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
    """`sums` of the rows, in powers of two unless there is a bias; behind the last one nothing has
    weight."""
    sums = backward.forward.sums
    assert sums is not None
    length = backward.forward.sizes[3]
    mask = f", rows < {length}, other=float('inf')" if ragged else ""
    at = f"{text.base(sums, 'head')} + rows * {sums.strides[2]}"
    by = f" * {LOG2_E!r}" if backward.forward.bias is None else ""
    return f"sums = tl.load({at}{mask}){by}"


def delta_of_rows(text: Blocked, backward: Backward, ragged: bool) -> str:
    """`delta` of the rows."""
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
