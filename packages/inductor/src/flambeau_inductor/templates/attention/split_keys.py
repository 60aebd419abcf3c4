"""Attention of one query with the keys split among programs (flash decoding), in two kernels.

In: an `Attention` of one query, `Blocks` of keys. Out: `Several`: the kernel that leaves the result
of each block of keys and the logarithm of its sum of powers, the loop that combines them, and the
memory between both. Invariant: the queries that share keys are rows of one program, which reads the
keys once; a block whose keys are all hidden counts nothing, and where all blocks are, the result is
zeros.

T. Dao et al.: Flash-Decoding for long-context inference, 2023.
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
from flambeau_inductor.templates.attention.flash_forward import natural, nothing_yet, step, weighed
from flambeau_inductor.templates.attention.operands import AttentionText, indented
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Heads, Rows
from flambeau_inductor.templates.call_replacement import Buffers, Kept, Several, touching


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
