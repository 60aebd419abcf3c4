"""Flash attention forward as one Triton kernel, with an online softmax and software pipelining.

In: an `Attention` and `Blocks`. Out: a `TritonKernel`. Invariant: the softmax of a row is summed in
float32 whatever the order of blocks; a row in which a bias makes every score -inf gives zeros, as
the library's kernels do, and +inf as the logarithm of its sum.

Maxima and sums go from block to block of keys (M. Milakov and N. Gimelshein: Online normalizer
calculation for softmax, 2018; T. Dao et al.: FlashAttention, 2022), in powers of two unless there
is a bias; keys that all rows see come first, without masks. Pipelined, the next block's scores are
issued before this one's are used (J. Shah et al.: FlashAttention-3, 2024).

Attention of one query with the keys split among programs (flash decoding), in two kernels. In: an
`Attention` of one query, `Blocks` of keys. Out: `Several`: the kernel that leaves the result of
each block of keys and the logarithm of its sum of powers, the loop that combines them, and the
memory between both. Invariant: the queries that share keys are rows of one program, which reads the
keys once; a block whose keys are all hidden counts nothing, and where all blocks are, the result is
zeros. T. Dao et al.: Flash-Decoding for long-context inference, 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Point, Reduce, Store, ValueId
from flambeau_inductor.ir.operands import LoopBody
from flambeau_inductor.ir.program import Buffer, Layout
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.templates.attention.operands import AttentionText, indented
from flambeau_inductor.templates.attention.problem import (
    LOG2_E,
    Attention,
    Blocks,
    Heads,
    Rows,
    padded,
)
from flambeau_inductor.templates.call_replacement import Buffers, Kept, Several, touching


def attention_kernel(
    attention: Attention, blocks: Blocks, buffers: Buffers, name: str = "attention"
) -> TritonKernel:
    """The kernel; `buffers` are all that it touches."""
    a = attention
    text = AttentionText(a, blocks, buffers, (a.q, a.k, a.v, a.bias, a.out, a.sums), "kept")
    length, out, ragged = text.length, text.out, text.ragged("rows")
    lines = [*text.load("q", a.q, "tile * QBLOCK", "rows", text.width, ragged), *nothing_yet(out)]
    if blocks.held:  # what was loaded would be read from shared memory again for every product
        lines.append(f"q = tl.where((rows < {length})[:, None], q, 0.0)")
    lines += _ahead(text) if blocks.ahead else text.two_key_loops(lambda last: step(text, last))
    masks = " & ".join(text.edges("rows", "outer", out, ragged))
    lines += [
        *weighed(out),
        f"out_at = {text.grid(a.out, 'rows', 'outer')}",
        f"tl.store(out_at, result.to({text.dtype})" + (f", {masks})" if masks else ")"),
    ]
    if a.sums is not None:
        lines += [
            f"sums = {natural(a)} + tl.log(tl.where(total == 0, 1.0, total))",
            f"sums = tl.where((total == 0) | (rows >= {length}), float('inf'), sums)",
            f"sums_at = {text.of_rows(a.sums)}",
            f"tl.store(sums_at, sums, rows < {a.sums.length})",
        ]
    return text.kernel(name, "rows", lines)


def nothing_yet(out: int) -> list[str]:
    """The state before the first block of keys: largest score, sum of powers, weighed values."""
    return [
        "top = tl.full([QBLOCK], float('-inf'), tl.float32)",
        "total = tl.zeros([QBLOCK], tl.float32)",
        f"result = tl.zeros([QBLOCK, {padded(out)}], tl.float32)",
    ]


def weighed(out: int) -> list[str]:
    """The result after the last one, and its positions along a row."""
    return [
        "result = result / tl.where(total == 0, 1.0, total)[:, None]",
        f"outer = tl.arange(0, {padded(out)})",
    ]


def natural(attention: Attention) -> str:
    """The largest score, which without a bias is a power of two, as one of e."""
    return f"top * {1 / LOG2_E!r}" if attention.bias is None else "top"


def step(text: AttentionText, masked: bool) -> list[str]:
    """The block of keys that begins at `start`, `masked` where it may reach past the last."""
    hidden = text.unseen() if masked else []
    return [*_score_product(text, "scores", masked), *_used(text, "start", masked, hidden)]


def _ahead(text: AttentionText) -> list[str]:
    """All blocks of keys, of which there is at least one, pipelined: `following` has the scores of
    the block at `start`, `scores` those of the one at `before`. What is not seen is in the last."""
    columns, last = "columns = before + tl.arange(0, KBLOCK)", text.last_key
    issued = _score_product(text, "following", True)
    used = [columns, *_used(text, "before", False, [])]
    return [
        "start = 0",
        *issued,
        "scores = following",
        f"for start in range(KBLOCK, {last}, KBLOCK):",
        *indented([*issued, "before = start - KBLOCK", *used, "scores = following"]),
        f"before = ({last} - 1) // KBLOCK * KBLOCK",
        *(columns, *text.unseen()),
        *(columns, *_used(text, "before", True, [])),
    ]


def _score_product(text: AttentionText, name: str, masked: bool) -> list[str]:
    """The products of `q` and the keys that begin at `start`."""
    ragged = masked and text.ragged("columns")
    return [
        "columns = start + tl.arange(0, KBLOCK)",
        *text.load("k", text.a.k, "start", "columns", text.width, ragged, ".T"),
        f"{name} = tl.dot(q, k, {text.precision})",
    ]


def _used(text: AttentionText, at: str, masked: bool, hidden: Sequence[str]) -> list[str]:
    """The softmax of `scores`, of the keys that begin `at` and whose positions are `columns`."""
    ragged = masked and text.ragged("columns")
    scored, by = text.scores(masked)
    if text.a.bias is None:  # every row sees a key in the first block: its maximum is a number
        weighed = [
            f"higher = tl.maximum(top, tl.max(scores, 1){by})",
            f"weights = tl.exp2(scores{by} - higher[:, None])",
            "again = tl.exp2(top - higher)",
        ]
    else:
        weighed = [
            "higher = tl.maximum(top, tl.max(scores, 1))",
            "shift = tl.where(higher == float('-inf'), 0.0, higher)",
            f"weights = tl.exp2((scores - shift[:, None]){by})",
            f"again = tl.exp2((top - shift){by})",
        ]
    return [
        *scored,
        *hidden,
        *weighed,
        "total = total * again + tl.sum(weights, 1)",
        *text.load("v", text.a.v, at, "columns", text.out, ragged),
        f"result = tl.dot(weights.to({text.dtype}), v, result * again[:, None], {text.precision})",
        "top = higher",
    ]


def split_attention(
    attention: Attention,
    blocks: Blocks,
    steps: int,
    buffers: Buffers,
    name: str,
    device: torch.device,
) -> Several:
    """The two kernels, and what they keep between them; a program takes so many blocks of keys in
    turn."""
    batch, heads, *_, keys, _, out = attention.sizes
    parts, rows = -(-keys // (steps * blocks.keys)), batch * heads
    partial, sums = f"{name}_parts", f"{name}_sums"
    shapes = {partial: (parts, rows, out), sums: (parts, rows)}
    (dtypes, numels), kept = buffers, list[Kept]()
    dtypes, numels = dict(dtypes), dict(numels)
    for buffer, shape in shapes.items():
        strides = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
        kept.append(Kept(Buffer(buffer, Layout(shape, strides, torch.float32, device)), 0, 1))
        dtypes[buffer], numels[buffer] = torch.float32, math.prod(shape)
    first = part_kernel(attention, blocks, steps, (partial, sums), (dtypes, numels), name)
    made = touching(first, shapes, parts * rows * out, attention.dtype)
    second = combination(attention, (partial, sums), parts, f"{name}_rest")
    kernel = generate(second, dtypes, numels)
    return Several(tuple(kept), (made, second), (first, kernel), (name,))


def part_kernel(
    attention: Attention,
    blocks: Blocks,
    steps: int,
    partial: tuple[str, str],
    buffers: Buffers,
    name: str,
) -> TritonKernel:
    """The kernel that leaves the results of each part of the keys, [parts, batch, heads, width],
    and the logarithms of the sums of powers, [parts, batch, heads], both of float32."""
    _, heads, kept, *_, keys, _, out = attention.sizes
    a, shared, part = grouped(attention), heads // kept, steps * blocks.keys
    rows = a.sizes[0] * heads
    result = Heads(partial[0], (heads * out, shared * out, out, 1))
    sums = Rows(partial[1], (heads, shared, 1), shared)
    text = AttentionText(a, blocks, buffers, (a.q, a.k, a.v, a.bias, result, sums))
    ragged = text.ragged("rows")
    last = str(part) if keys % part == 0 else f"tl.minimum({keys} - tile * {part}, {part})"
    of_rows = [f"(rows < {text.length})"] if ragged else []
    lines = [
        "rows = tl.arange(0, QBLOCK)",
        *text.load("q", a.q, "0", "rows", text.width, ragged),
        *nothing_yet(out),
        f"for start in range(tile * {part}, tile * {part} + {last}, KBLOCK):",
        *indented(step(text, text.ragged("columns"))),
        *weighed(out),
        _stored(
            f"{text.grid(result, 'rows', 'outer')} + tile * {rows * out}",
            "result",
            text.edges("rows", "outer", out, ragged),
        ),
        _stored(f"{text.of_rows(sums)} + tile * {rows}", f"{natural(a)} + tl.log(total)", of_rows),
    ]
    return text.tiled(name, -(-keys // part), lines)


def grouped(attention: Attention) -> Attention:
    """The same with the queries that share a head of keys as the queries of that head."""
    batch, heads, kept, _, keys, width, out = attention.sizes
    shared = heads // kept

    def rows(of: Heads) -> Heads:
        first, second, _, last = of.strides
        return replace(of, strides=(first, shared * second, second, last))

    return replace(
        attention,
        q=rows(attention.q),
        out=rows(attention.out),
        bias=None if attention.bias is None else rows(attention.bias),
        sizes=(batch, kept, kept, shared, keys, width, out),
    )


def _stored(at: str, value: str, masks: Sequence[str]) -> str:
    return f"tl.store({', '.join([at, value, *([' & '.join(masks)] if masks else [])])})"


def combination(attention: Attention, partial: tuple[str, str], parts: int, name: str) -> Loop:
    """The loop that weighs the results of the blocks by their sums."""
    batch, heads, *_, out = attention.sizes
    rows, wide = batch * heads, torch.float32
    made = LoopBody()
    put = made.append

    def instead(value: ValueId, number: float, other: float) -> ValueId:
        """Another number in the place of one."""
        found = put(Point("eq", (value, put(Const(number, wide))), torch.bool))
        return put(Point("where", (found, put(Const(other, wide)), value), wide))

    sequence, head, column, part = (Var(n) for n in ("sequence", "head", "column", "part"))
    row = part * rows + sequence * heads + head
    sums = put(Load(partial[1], row, wide))
    top = instead(put(Reduce("max", sums, wide)), -math.inf, 0.0)
    weight = put(Point("exp", (put(Point("sub", (sums, top), wide)),), wide))
    result = put(Load(partial[0], row * out + column, wide))
    weighed = put(Reduce("sum", put(Point("mul", (weight, result), wide)), wide))
    total = instead(put(Reduce("sum", weight, wide)), 0.0, 1.0)
    value = put(Point("div", (weighed, total), wide))
    value = put(Point("cast", (value,), attention.dtype)) if attention.dtype != wide else value
    first, second, _, last = attention.out.strides
    to = sequence * first + head * second + column * last + attention.out.offset
    put(Store(attention.out.buffer, to, value))
    axes = (Axis("sequence", batch), Axis("head", heads), Axis("column", out))
    return normalised(Loop(name, axes, (Axis("part", parts),), tuple(made.body)))
