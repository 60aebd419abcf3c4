"""Block loads and stores of attention's operands.

In: an `Attention` and its `Blocks`. Out: lines of Triton, and the descriptors that they use.
Invariant: what a block has beyond its operand is read as zeros, through descriptors or pointers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from flambeau_inductor.codegen.triton.dtypes import pointer
from flambeau_inductor.codegen.triton.kernel import WITH_DESCRIPTORS, TritonKernel
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor, fits
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Heads, Rows, padded
from flambeau_inductor.templates.gemm.kernel import template_kernel
from flambeau_inductor.templates.gemm.operands import masked
from flambeau_inductor.tuning.machine import TMA_ALIGNMENT

HALF = ("bf16", "fp16")


def blocked(
    attention: Attention,
    blocks: Blocks,
    operands: Sequence[Heads | Rows | None],
    dtypes: Mapping[str, torch.dtype],
) -> Blocked:
    """The names of a kernel that touches `operands`, in this order."""
    arguments = tuple(dict.fromkeys(each.buffer for each in operands if each is not None))
    pointers = {buffer: pointer(dtypes[buffer]) for buffer in arguments}
    batch = attention.sizes[0]
    return Blocked(arguments, pointers, batch, blocks.queries, blocks.keys, blocks.described)


@dataclass(slots=True)
class Blocked:
    """Names of a kernel's buffers, and its descriptors so far. The lines around have `sequence`,
    `head` and `kept` (the head of keys and values)."""

    arguments: tuple[str, ...]
    pointers: Mapping[str, str]
    batch: int
    queries: int
    keys: int
    described: bool
    descriptors: list[Descriptor] = field(default_factory=list)

    def name(self, buffer: str) -> str:
        return f"b{self.arguments.index(buffer)}"

    def base(self, of: Heads | Rows, head: str) -> str:
        return (
            f"{self.name(of.buffer)} + {of.offset} + sequence * {of.strides[0]}"
            f" + {head} * {of.strides[1]}"
        )

    def block(
        self,
        name: str,
        of: Heads,
        rows: tuple[str, str, str],
        sizes: tuple[int, int, int],
        transposed: bool = False,
        ragged: bool = False,
    ) -> list[str]:
        """Lines that read `name`: rows by width, or `transposed`. `rows` are the text of the head,
        of the first row and of all; `sizes` heads, rows in memory and their width. `ragged` blocks
        may reach past the last row."""
        head, first, all_rows = rows
        heads, length, width = sizes
        inner = f"tl.arange(0, {padded(width)})"
        down, across = ("[None, :]", "[:, None]") if transposed else ("[:, None]", "[None, :]")
        masks = [f"({all_rows} < {length}){down}"] if ragged else []
        masks += [f"({inner} < {width}){across}"] if padded(width) != width else []
        pointed = (
            f"{name} = tl.load({self.base(of, head)} + ({all_rows} * {of.strides[2]}){down}"
            f" + ({inner} * {of.strides[3]}){across}{masked(masks)})"
        )
        block = {"rows": "QBLOCK", "columns": "KBLOCK"}[all_rows]
        descriptor = self._descriptor(of, (self.batch, heads, length, width), block)
        if descriptor is None:
            return [pointed]
        if descriptor not in self.descriptors:
            self.descriptors.append(descriptor)
        number = self.descriptors.index(descriptor)
        at = f"[sequence.to(tl.int32), ({head}).to(tl.int32), {first}, 0]"
        text = f"{name} = d{number}.load({at}).reshape([{block}, {padded(width)}])"
        return [
            f"if {WITH_DESCRIPTORS}:",
            f"    {text}{'.T' if transposed else ''}",
            "else:",
            f"    {pointed}",
        ]

    def kernel(
        self, name: str, lines: Sequence[str], blocks: Blocks, programs: int
    ) -> TritonKernel:
        constants = (("QBLOCK", blocks.queries), ("KBLOCK", blocks.keys))
        pointers = tuple(self.pointers[buffer] for buffer in self.arguments)
        body = [f"    {line}" for line in lines]
        head = (name, body, self.arguments, pointers, constants, programs)
        return template_kernel(*head, blocks.warps, blocks.stages, tuple(self.descriptors))

    def _descriptor(
        self, of: Heads, sizes: tuple[int, int, int, int], block: str
    ) -> Descriptor | None:
        if not self.described:
            return None
        dtype = self.pointers[of.buffer][1:]
        # where there is one of something its stride says nothing
        strides = tuple(
            TMA_ALIGNMENT if n == 1 and d < 3 else s
            for d, (n, s) in enumerate(zip(sizes, of.strides, strict=True))
        )
        shape = (1, 1, {"QBLOCK": self.queries, "KBLOCK": self.keys}[block], padded(sizes[3]))
        made = Descriptor(self.arguments.index(of.buffer), of.offset, sizes, strides, shape, dtype)
        return made if dtype in HALF and fits(made) else None
