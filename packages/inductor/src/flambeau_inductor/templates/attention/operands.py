"""Text of attention kernels: places of programs, block loads and stores of operands.

In: an `Attention` and its `Blocks`. Out: lines of Triton, and the descriptors that they use.
Invariant: what a block has beyond its operand is read as zeros, through descriptors or pointers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau_inductor.codegen.triton.dtypes import pointer, register
from flambeau_inductor.codegen.triton.instructions import INT32_LIMIT
from flambeau_inductor.codegen.triton.kernel import WITH_DESCRIPTORS, TritonKernel, kernel_of
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor, fits
from flambeau_inductor.templates.attention.problem import (
    LOG2_E,
    Attention,
    Blocks,
    Heads,
    Rows,
    padded,
)
from flambeau_inductor.templates.call_replacement import Buffers
from flambeau_inductor.templates.gemm.operands import masked
from flambeau_inductor.tuning.machine import TMA_ALIGNMENT

HALF = ("bf16", "fp16")


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class AttentionText:
    """A kernel that touches `operands`, in this order: names of its buffers, and its descriptors so
    far. Its lines have `sequence`, `head` and, of keys and values, the head `keys_head`; `rows` are
    positions of queries, `columns` those of keys."""

    def __init__(
        self,
        attention: Attention,
        blocks: Blocks,
        buffers: Buffers,
        operands: Sequence[Heads | Rows | None],
        keys_head: str = "head",
    ) -> None:
        dtypes, numels = buffers
        self.a, self.blocks, self.keys_head = attention, blocks, keys_head
        self.batch, self.heads, self.kept, self.length, self.keys, self.width, self.out = (
            attention.sizes
        )
        self.size = {"rows": self.length, "columns": self.keys}
        self.block = {"rows": blocks.queries, "columns": blocks.keys}
        self.arguments = tuple(dict.fromkeys(each.buffer for each in operands if each is not None))
        self.pointers = {buffer: pointer(dtypes[buffer]) for buffer in self.arguments}
        self.wide = ".to(tl.int64)" if max(numels.values(), default=0) > INT32_LIMIT else ""
        self.dtype = register(attention.dtype)
        precision = "tf32" if attention.dtype.itemsize < 4 else "ieee"
        self.precision = f"input_precision={precision!r}"
        self.descriptors: list[Descriptor] = []

    def ragged(self, along: str) -> bool:
        """Whether the last block of rows, or of columns, reaches past the end."""
        return self.size[along] % self.block[along] != 0

    def base(self, of: Heads | Rows, head: str = "head") -> str:
        return (
            f"b{self.arguments.index(of.buffer)} + {of.offset} + sequence * {of.strides[0]}"
            f" + {head} * {of.strides[1]}"
        )

    def of_rows(self, of: Rows) -> str:
        """Addresses of a number for each row."""
        return f"{self.base(of)} + rows * {of.strides[2]}"

    def grid(self, of: Heads, down: str, across: str, head: str = "head", turned: str = "") -> str:
        """Addresses along the last two dimensions of an operand; `turned`: the first lies across
        the block."""
        first, second = _AXES[::-1] if turned else _AXES
        steps = f"({down} * {of.strides[2]}){first} + ({across} * {of.strides[3]}){second}"
        return f"{self.base(of, head)} + {steps}"

    def edges(
        self, along: str, inner: str, width: int, ragged: bool, turned: str = ""
    ) -> list[str]:
        """Masks of what there is of a block of `width` numbers each."""
        first, second = _AXES[::-1] if turned else _AXES
        masks = [f"({along} < {self.size[along]}){first}"] if ragged else []
        return masks + ([f"({inner} < {width}){second}"] if padded(width) != width else [])

    def load(
        self, name: str, of: Heads, first: str, along: str, width: int, ragged: bool, to: str = ""
    ) -> list[str]:
        """Lines that read `name`: rows (or columns) by width, or transposed (`to` is `.T`).
        `first` is the text of the first of them; `ragged` blocks may reach past the last one."""
        head, heads = ("head", self.heads) if along == "rows" else (self.keys_head, self.kept)
        inner = f"tl.arange(0, {padded(width)})"
        at = self.grid(of, along, inner, head, to)
        pointed = f"{name} = tl.load({at}{masked(self.edges(along, inner, width, ragged, to))})"
        made = self._descriptor(of, heads, along, width) if self.blocks.described else None
        if made is None:
            return [pointed]
        if made not in self.descriptors:
            self.descriptors.append(made)
        block = f"[{_BLOCKS[along]}, {padded(width)}]"
        at = f"[sequence.to(tl.int32), ({head}).to(tl.int32), {first}, 0]"
        read = f"d{self.descriptors.index(made)}.load({at}).reshape({block}){to}"
        return [f"if {WITH_DESCRIPTORS}:", f"    {name} = {read}", "else:", f"    {pointed}"]

    def _descriptor(self, of: Heads, heads: int, along: str, width: int) -> Descriptor | None:
        dtype, sizes = self.pointers[of.buffer][1:], (self.batch, heads, self.size[along], width)
        # where there is one of something its stride says nothing
        strides = tuple(
            TMA_ALIGNMENT if n == 1 and d < 3 else s
            for d, (n, s) in enumerate(zip(sizes, of.strides, strict=True))
        )
        shape = (1, 1, self.block[along], padded(width))
        made = Descriptor(self.arguments.index(of.buffer), of.offset, sizes, strides, shape, dtype)
        return made if dtype in HALF and fits(made) else None

    def scores(self, masks: bool) -> tuple[list[str], str]:
        """Lines that add the bias to `scores` (products of `q` and keys), and the factor to
        multiply them by, after the row's maximum is subtracted if there is a bias: the smallest
        number, by which many hide a key, would be -inf in powers of two."""
        bias, factor = self.a.bias, self.a.scale * LOG2_E
        if bias is None and factor > 0:
            return [], "" if factor == 1 else f" * {factor!r}"
        if bias is None:
            return [f"scores = scores * {factor!r}"], ""
        edges = masked(self.score_edges(masks))
        lines = [
            f"bias = tl.load({self.grid(bias, 'rows', 'columns')}{edges})",
            f"scores = scores * {self.a.scale!r} + bias.to(tl.float32)",
        ]
        return lines, f" * {LOG2_E!r}"

    def score_edges(self, last: bool) -> list[str]:
        """Masks of the scores of a block that exist; `last`: its keys may reach past the end."""
        edges = [f"(rows < {self.length})[:, None]"] if self.ragged("rows") else []
        if last and self.ragged("columns"):
            edges.append(f"(columns < {self.keys})[None, :]")
        return edges

    def unseen(self) -> list[str]:
        """Lines after which `scores` of keys that are not there, or not seen, are -inf."""
        seen = [f"(columns < {self.keys})[None, :]"] if self.ragged("columns") else []
        seen += ["(rows[:, None] >= columns[None, :])"] if self.a.causal else []
        return [f"scores = tl.where({' & '.join(seen)}, scores, float('-inf'))"] if seen else []

    @property
    def last_key(self) -> str:
        """The end of the keys that this program's queries see."""
        return f"tl.minimum({self.keys}, (tile + 1) * QBLOCK)" if self.a.causal else str(self.keys)

    def two_key_loops(self, step: Callable[[bool], Sequence[str]]) -> list[str]:
        """Steps over the keys that all rows see, without masks, then over those that need them."""
        keys, causal = self.keys, self.a.causal
        whole = keys // self.blocks.keys * self.blocks.keys
        before = f"tl.minimum({whole}, tile * QBLOCK // KBLOCK * KBLOCK)" if causal else str(whole)
        lines: list[str] = []
        if whole or causal:
            lines += [f"for start in range(0, {before}, KBLOCK):", *indented(step(False))]
        if causal or whole != keys:
            lines += [f"for start in range({before}, {self.last_key}, KBLOCK):"]
            lines += indented(step(True))
        return lines

    def kernel(self, name: str, along: str, lines: Sequence[str]) -> TritonKernel:
        """The kernel whose programs compute a block of rows, or of columns, of a head each; the
        longest begin."""
        tiles, block = -(-self.size[along] // self.block[along]), _BLOCKS[along]
        last_first = along == "rows" and self.a.causal
        place = f"{along} = tile * {block} + tl.arange(0, {block})"
        return self.tiled(name, tiles, [place, *lines], last_first)

    def tiled(
        self, name: str, tiles: int, lines: Sequence[str], last_first: bool = False
    ) -> TritonKernel:
        """The kernel with so many programs for each head, of which each has its `tile`."""
        places = [
            "program = tl.program_id(0)",
            f"tile = {f'{tiles - 1} - ' if last_first else ''}program % {tiles}",
            f"head = (program // {tiles} % {self.heads}){self.wide}",
            f"sequence = (program // {tiles * self.heads}){self.wide}",
            f"kept = head // {self.heads // self.kept}",
        ]
        constants = (("QBLOCK", self.blocks.queries), ("KBLOCK", self.blocks.keys))
        body, programs = indented([*places, *lines]), tiles * self.heads * self.batch
        made = (name, body, self.pointers, constants, programs, self.blocks.warps)
        return kernel_of(*made, self.blocks.stages, tuple(self.descriptors))


_AXES = ("[:, None]", "[None, :]")
_BLOCKS = {"rows": "QBLOCK", "columns": "KBLOCK"}
