"""Attention forward as one Triton kernel: scores are never in memory.

In: `Attention`: where queries, keys, values and a bias lie, and how wide a block of each is. Out: a
`TritonKernel`. Invariant: the softmax of a row is summed in float32 whatever the order of blocks;
a row in which every score is -inf gives zeros, as the library's fused kernels do.

The rows' maxima and sums are carried from block to block of keys (M. Milakov and N. Gimelshein:
Online normalizer calculation for softmax, 2018; T. Dao et al.: FlashAttention, 2022), in powers of
two, which is what the machine has an instruction for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flambeau_inductor.codegen.triton.dtypes import pointer, register
from flambeau_inductor.codegen.triton.kernel import INT32_LIMIT, TritonKernel

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Heads:
    """Memory of an operand: strides along batch, heads, positions and width, in elements."""

    buffer: str
    strides: tuple[int, int, int, int]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """`sizes`: batch, heads, heads of keys, queries, keys, width of keys, width of values."""

    q: Heads
    k: Heads
    v: Heads
    out: Heads
    bias: Heads | None
    sizes: tuple[int, int, int, int, int, int, int]
    dtype: torch.dtype
    causal: bool
    scale: float


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries of a program, keys of a step."""

    queries: int
    keys: int
    warps: int
    stages: int

    @property
    def name(self) -> str:
        return f"{self.queries}x{self.keys}w{self.warps}s{self.stages}"


def blocks_for(attention: Attention) -> tuple[Blocks, ...]:
    """What is worth trying: wide heads leave room for smaller blocks only."""
    *_, length, keys, width, out = attention.sizes
    found: tuple[Blocks, ...]
    if attention.dtype == torch.float32:
        found = (Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2))
    elif max(width, out) > 128:
        found = (Blocks(64, 32, 4, 2), Blocks(128, 32, 8, 2))
    elif max(width, out) > 64:
        found = (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 3), Blocks(128, 128, 8, 2))
    else:
        found = (Blocks(128, 64, 4, 3), Blocks(128, 128, 8, 3), Blocks(64, 64, 4, 3))
    short = [b for b in found if b.queries <= max(32, 2 * length) and b.keys <= max(32, 2 * keys)]
    return tuple(short) or (Blocks(32, 32, 4, 2),)


def attention_kernel(
    attention: Attention,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "attention",
) -> TritonKernel:
    """The kernel. `dtypes` and `numels` are of all the buffers that it touches."""
    a = attention
    batch, heads, kept, length, keys, width, out = a.sizes
    given = [a.q, a.k, a.v, *([a.bias] if a.bias is not None else []), a.out]
    arguments = tuple(dict.fromkeys(each.buffer for each in given))
    names = {buffer: f"b{i}" for i, buffer in enumerate(arguments)}
    wide = ".to(tl.int64)" if max(numels.values(), default=0) > INT32_LIMIT else ""
    tiles = -(-length // blocks.queries)
    padded, padded_out = _power(width), _power(out)
    row = f"(rows < {length})[:, None]"
    across = _both(row if length % blocks.queries else "", padded, width, "inner")
    ragged = keys % blocks.keys != 0
    key_mask = _both(f"(columns < {keys})[None, :]" if ragged else "", padded, width, "down")
    value_mask = _both(f"(columns < {keys})[:, None]" if ragged else "", padded_out, out, "outer")
    stored = _both(row if length % blocks.queries else "", padded_out, out, "outer")

    def base(of: Heads, head: str) -> str:
        return (
            f"{names[of.buffer]} + {of.offset} + sequence * {of.strides[0]}"
            f" + {head} * {of.strides[1]}"
        )

    precision = "ieee" if a.dtype == torch.float32 else "tf32"
    last = f"tl.minimum({keys}, (tile + 1) * QBLOCK)" if a.causal else str(keys)
    lines = [
        "program = tl.program_id(0)",
        f"tile = {tiles - 1} - program % {tiles}" if a.causal else f"tile = program % {tiles}",
        f"head = (program // {tiles} % {heads}){wide}",
        f"sequence = (program // {tiles * heads}){wide}",
        "rows = tile * QBLOCK + tl.arange(0, QBLOCK)",
        f"inner = tl.arange(0, {padded})",
        f"outer = tl.arange(0, {padded_out})",
        f"q = tl.load({base(a.q, 'head')} + (rows * {a.q.strides[2]})[:, None]"
        f" + (inner * {a.q.strides[3]})[None, :]{_masked(across)})",
        f"k_at = {base(a.k, f'(head // {heads // kept})')}",
        f"v_at = {base(a.v, f'(head // {heads // kept})')}",
        "top = tl.full([QBLOCK], float('-inf'), tl.float32)",
        "total = tl.zeros([QBLOCK], tl.float32)",
        f"result = tl.zeros([QBLOCK, {padded_out}], tl.float32)",
        f"for start in range(0, {last}, KBLOCK):",
        "    columns = start + tl.arange(0, KBLOCK)",
        f"    k = tl.load(k_at + (columns * {a.k.strides[2]})[None, :]"
        f" + (inner * {a.k.strides[3]})[:, None]{_masked(key_mask)})",
        f"    scores = tl.dot(q, k, input_precision={precision!r}) * {a.scale * LOG2_E!r}",
    ]
    if a.bias is not None:
        masks = [row] if length % blocks.queries else []
        masks += [f"(columns < {keys})[None, :]"] if ragged else []
        lines.append(
            f"    bias = tl.load({base(a.bias, 'head')} + (rows * {a.bias.strides[2]})[:, None]"
            f" + (columns * {a.bias.strides[3]})[None, :]{_masked(masks)})"
        )
        lines.append(f"    scores += bias.to(tl.float32) * {LOG2_E!r}")
    if ragged:
        lines.append(f"    scores = tl.where((columns < {keys})[None, :], scores, float('-inf'))")
    if a.causal:
        lines.append(
            "    scores = tl.where(rows[:, None] >= columns[None, :], scores, float('-inf'))"
        )
    lines += [
        "    higher = tl.maximum(top, tl.max(scores, 1))",
        "    shift = tl.where(higher == float('-inf'), 0.0, higher)",
        "    weights = tl.exp2(scores - shift[:, None])",
        "    again = tl.exp2(top - shift)",
        "    total = total * again + tl.sum(weights, 1)",
        f"    v = tl.load(v_at + (columns * {a.v.strides[2]})[:, None]"
        f" + (outer * {a.v.strides[3]})[None, :]{_masked(value_mask)})",
        f"    result = tl.dot(weights.to({register(a.dtype)}), v, result * again[:, None],"
        f" input_precision={precision!r})",
        "    top = higher",
        "result = result / tl.where(total == 0, 1.0, total)[:, None]",
        f"out_at = {base(a.out, 'head')} + (rows * {a.out.strides[2]})[:, None]"
        f" + (outer * {a.out.strides[3]})[None, :]",
        f"tl.store(out_at, result.to({register(a.dtype)})"
        + (f", {' & '.join(stored)}" if stored else "")
        + ")",
    ]
    parameters = [*(names[b] for b in arguments), "QBLOCK: tl.constexpr", "KBLOCK: tl.constexpr"]
    header = f"@triton.jit\ndef {name}({', '.join(parameters)}):"
    return TritonKernel(
        name=name,
        source="\n".join([header, *(f"    {line}" for line in lines)]) + "\n",
        arguments=arguments,
        pointers=tuple(pointer(dtypes[buffer]) for buffer in arguments),
        constants=(("QBLOCK", blocks.queries), ("KBLOCK", blocks.keys)),
        programs=tiles * heads * batch,
        warps=blocks.warps,
        stages=blocks.stages,
    )


def _power(n: int) -> int:
    return max(16, 1 << max(0, n - 1).bit_length())


def _both(rows: str, padded: int, width: int, which: str) -> list[str]:
    """The masks of a block whose other side is `width` in a block of `padded`."""
    found = [rows] if rows else []
    if padded != width:
        if which == "down":  # keys lie across the block, their width down it
            found.append(f"(inner < {width})[:, None]")
        else:
            found.append(f"({which} < {width})[None, :]")
    return found


def _masked(masks: list[str]) -> str:
    return f", {' & '.join(masks)}, other=0" if masks else ""
