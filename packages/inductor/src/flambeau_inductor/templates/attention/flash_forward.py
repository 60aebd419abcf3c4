"""Flash attention forward as one Triton kernel, with an online softmax and software pipelining.

In: an `Attention` and `Blocks`. Out: a `TritonKernel`. Invariant: the softmax of a row is summed in
float32 whatever the order of blocks; a row in which a bias makes every score -inf gives zeros, as
the library's kernels do, and +inf as the logarithm of its sum.

Maxima and sums go from block to block of keys (M. Milakov and N. Gimelshein: Online normalizer
calculation for softmax, 2018; T. Dao et al.: FlashAttention, 2022), in powers of two unless there
is a bias; keys that all rows see come first, without masks. Pipelined, the next block's scores are
issued before this one's are used (J. Shah et al.: FlashAttention-3, 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from flambeau_inductor.codegen.triton.dtypes import register
from flambeau_inductor.codegen.triton.kernel import INT32_LIMIT, TritonKernel
from flambeau_inductor.templates.attention.operands import Blocked, blocked
from flambeau_inductor.templates.attention.problem import LOG2_E, Attention, Blocks, padded


def attention_kernel(
    attention: Attention,
    blocks: Blocks,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "attention",
) -> TritonKernel:
    """The kernel. `dtypes` and `numels` are of all the buffers that it touches."""
    a = attention
    batch, heads, _, length, keys, width, out = a.sizes
    text = blocked(a, blocks, (a.q, a.k, a.v, a.bias, a.out, a.sums), dtypes)
    tiles = -(-length // blocks.queries)
    ragged = length % blocks.queries != 0
    q = ("head", "tile * QBLOCK", "rows")
    lines = [
        *places(a, tiles, "QBLOCK", numels, last_first=a.causal),
        *text.block("q", a.q, q, (heads, length, width), ragged=ragged),
        "top = tl.full([QBLOCK], float('-inf'), tl.float32)",
        "total = tl.zeros([QBLOCK], tl.float32)",
        f"result = tl.zeros([QBLOCK, {padded(out)}], tl.float32)",
    ]
    if blocks.held:
        lines.append(register_fence("q", "rows", length))
    last = f"tl.minimum({keys}, (tile + 1) * QBLOCK)" if a.causal else str(keys)
    if blocks.ahead:
        lines += _ahead(text, a, blocks, last)
    else:
        lines += two_key_loops(a, blocks, last, lambda masked: _step(text, a, blocks, masked))
    masks = [f"(rows < {length})[:, None]"] if ragged else []
    masks += [f"(outer < {out})[None, :]"] if padded(out) != out else []
    lines += [
        "result = result / tl.where(total == 0, 1.0, total)[:, None]",
        f"outer = tl.arange(0, {padded(out)})",
        f"out_at = {text.base(a.out, 'head')} + (rows * {a.out.strides[2]})[:, None]"
        f" + (outer * {a.out.strides[3]})[None, :]",
        f"tl.store(out_at, result.to({register(a.dtype)})"
        + (f", {' & '.join(masks)}" if masks else "")
        + ")",
    ]
    if a.sums is not None:
        natural = f"top * {1 / LOG2_E!r}" if a.bias is None else "top"
        lines += [
            f"sums = {natural} + tl.log(tl.where(total == 0, 1.0, total))",
            f"sums = tl.where((total == 0) | (rows >= {length}), float('inf'), sums)",
            f"sums_at = {text.base(a.sums, 'head')} + rows * {a.sums.strides[2]}",
            f"tl.store(sums_at, sums, rows < {a.sums.length})",
        ]
    return text.kernel(name, lines, blocks, tiles * heads * batch)


def two_key_loops(
    attention: Attention, blocks: Blocks, last: str, step: Callable[[bool], Sequence[str]]
) -> list[str]:
    """Steps over the keys that all rows see, without masks, then over those that need them."""
    keys, causal = attention.sizes[4], attention.causal
    whole = keys // blocks.keys * blocks.keys
    before = f"tl.minimum({whole}, tile * QBLOCK // KBLOCK * KBLOCK)" if causal else str(whole)
    lines: list[str] = []
    if whole or causal:
        lines += [f"for start in range(0, {before}, KBLOCK):", *indented(step(False))]
    if causal or whole != keys:
        lines += [f"for start in range({before}, {last}, KBLOCK):", *indented(step(True))]
    return lines


def places(
    attention: Attention,
    tiles: int,
    block: str,
    numels: Mapping[str, int],
    last_first: bool = False,
) -> list[str]:
    """Which rows (or columns) of which head this program computes; the longest begin."""
    heads, kept = attention.sizes[1:3]
    wide = ".to(tl.int64)" if max(numels.values(), default=0) > INT32_LIMIT else ""
    name = "rows" if block == "QBLOCK" else "columns"
    return [
        "program = tl.program_id(0)",
        f"tile = {tiles - 1} - program % {tiles}" if last_first else f"tile = program % {tiles}",
        f"head = (program // {tiles} % {heads}){wide}",
        f"sequence = (program // {tiles * heads}){wide}",
        f"kept = head // {heads // kept}",
        f"{name} = tile * {block} + tl.arange(0, {block})",
    ]


def scores(
    text: Blocked, attention: Attention, blocks: Blocks, masked: bool
) -> tuple[list[str], float]:
    """Lines that add the bias to `scores` (products of `q` and keys), and the factor to multiply
    them by, after the row's maximum is subtracted if there is a bias: the smallest number, by which
    many hide a key, would be -inf in powers of two."""
    a = attention
    *_, length, keys, _, _ = a.sizes
    if a.bias is None:
        factor = a.scale * LOG2_E
        return ([], factor) if factor > 0 else ([f"scores = scores * {factor!r}"], 1.0)
    masks = [f"(rows < {length})[:, None]"] if length % blocks.queries else []
    masks += [f"(columns < {keys})[None, :]"] if masked and keys % blocks.keys else []
    mask = f", {' & '.join(masks)}, other=0" if masks else ""
    lines = [
        f"bias = tl.load({text.base(a.bias, 'head')} + (rows * {a.bias.strides[2]})[:, None]"
        f" + (columns * {a.bias.strides[3]})[None, :]{mask})",
        f"scores = scores * {a.scale!r} + bias.to(tl.float32)",
    ]
    return lines, LOG2_E


def unseen(attention: Attention, blocks: Blocks) -> list[str]:
    """Lines after which `scores` of keys that are not there, or not seen, are -inf."""
    keys = attention.sizes[4]
    seen = [f"(columns < {keys})[None, :]"] if keys % blocks.keys else []
    seen += ["(rows[:, None] >= columns[None, :])"] if attention.causal else []
    return [f"scores = tl.where({' & '.join(seen)}, scores, float('-inf'))"] if seen else []


def precision(attention: Attention) -> str:
    return "ieee" if attention.dtype == torch.float32 else "tf32"


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _step(text: Blocked, attention: Attention, blocks: Blocks, masked: bool) -> list[str]:
    return [
        *_score_product(text, attention, "scores", masked),
        *_used(text, attention, blocks, "start", masked, unseen(attention, blocks) * masked),
    ]


def _ahead(text: Blocked, attention: Attention, blocks: Blocks, last: str) -> list[str]:
    """All blocks of keys, pipelined; what is not seen is in the last."""
    columns = "columns = before + tl.arange(0, KBLOCK)"
    return ahead(
        "KBLOCK",
        last,
        issued=lambda: _score_product(text, attention, "following", ragged=True),
        used=lambda final: [columns, *_used(text, attention, blocks, "before", final, [])],
        hidden=[columns, *unseen(attention, blocks)],
    )


def _score_product(text: Blocked, attention: Attention, name: str, ragged: bool) -> list[str]:
    """The products of `q` and the keys that begin at `start`."""
    a = attention
    _, _, kept, _, keys, width, _ = a.sizes
    ragged = ragged and keys % text.keys != 0
    at = ("kept", "start", "columns")
    return [
        "columns = start + tl.arange(0, KBLOCK)",
        *text.block("k", a.k, at, (kept, keys, width), transposed=True, ragged=ragged),
        f"{name} = tl.dot(q, k, input_precision={precision(a)!r})",
    ]


def _used(
    text: Blocked, attention: Attention, blocks: Blocks, at: str, masked: bool, hidden: list[str]
) -> list[str]:
    """The softmax of `scores`, of the keys that begin `at` and whose positions are `columns`."""
    a = attention
    _, _, kept, _, keys, _, out = a.sizes
    ragged = masked and keys % blocks.keys != 0
    scored, factor = scores(text, a, blocks, masked)
    by = "" if factor == 1 else f" * {factor!r}"
    if a.bias is None:  # every row sees a key in the first block: its maximum is a number
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
        *text.block("v", a.v, ("kept", at, "columns"), (kept, keys, out), ragged=ragged),
        f"result = tl.dot(weights.to({register(a.dtype)}), v, result * again[:, None],"
        f" input_precision={precision(a)!r})",
        "top = higher",
    ]


Lines = Sequence[str]


def ahead(
    block: str, last: str, issued: Callable[[], Lines], used: Callable[[bool], Lines], hidden: Lines
) -> list[str]:
    """Software pipelining over blocks of `block` (the name of a constant) to before `last`, of
    which there is at least one.

    `issued` makes `following`, the scores of the block at `start`; `used` computes with `scores` of
    the block at `before`, the last one or not; `hidden` masks scores of the last.
    """
    inside = [*issued(), f"before = start - {block}", *used(False), "scores = following"]
    return [
        "start = 0",
        *issued(),
        "scores = following",
        f"for start in range({block}, {last}, {block}):",
        *(f"    {line}" for line in inside),
        f"before = ({last} - 1) // {block} * {block}",
        *hidden,
        *used(True),
    ]


def register_fence(name: str, rows: str, length: int) -> str:
    """The line after which an operand is in registers; what was loaded would be read from shared
    memory again for every product."""
    return f"{name} = tl.where(({rows} < {length})[:, None], {name}, 0.0)"
