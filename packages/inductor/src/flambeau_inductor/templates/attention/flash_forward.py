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

from collections.abc import Sequence

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.attention.operands import AttentionText, indented
from flambeau_inductor.templates.attention.problem import LOG2_E, Attention, Blocks, padded
from flambeau_inductor.templates.call_replacement import Buffers


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
