"""The attention problem, as data.

In: sizes and layouts. Out: `Attention`, and `Blocks` that are worth trying. Invariant: sizes and
strides are numbers, in elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from flambeau_inductor.codegen.triton.tiling import next_power_of_two
from flambeau_inductor.tuning import MEASURED, Tuning

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Heads:
    """Memory of an operand: strides along batch, heads, positions and width, in elements."""

    buffer: str
    strides: tuple[int, int, int, int]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """A float32 number for each query: strides along batch, heads and positions. There are `length`
    of them in memory, at least as many as queries."""

    buffer: str
    strides: tuple[int, int, int]
    length: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """`sizes`: batch, heads, heads of keys, queries, keys, width of keys, width of values. `sums`:
    the logarithms of the rows' sums of powers, if wanted."""

    q: Heads
    k: Heads
    v: Heads
    out: Heads
    bias: Heads | None
    sizes: tuple[int, int, int, int, int, int, int]
    dtype: torch.dtype
    causal: bool
    scale: float
    sums: Rows | None = None


@dataclass(frozen=True, slots=True)
class Blocks:
    """Queries of a program, keys of a step; `described` ones are read through descriptors. `held`:
    queries are in registers, not shared memory; `ahead`: the next step's scores are issued before
    this one's are used. Gradients take neither."""

    queries: int
    keys: int
    warps: int
    stages: int
    described: bool = False
    held: bool = False
    ahead: bool = False

    @property
    def name(self) -> str:
        text = f"{self.queries}x{self.keys}w{self.warps}s{self.stages}"
        return text + "d" * self.described + "h" * self.held + "a" * self.ahead


def blocks_for(
    attention: Attention, described: bool = False, tuning: Tuning = MEASURED
) -> tuple[Blocks, ...]:
    """What is worth trying: wide heads leave room for smaller blocks only, and where a bias is in
    flight too, for fewer loads. `described`: the device has a tensor memory accelerator."""
    rows = of_heads(tuning.attention_blocks, attention)
    return fitting(attention, tuple(block(row) for row in rows), described, tuning)


Entry = TypeVar("Entry")


def of_heads(table: Mapping[str, Entry], attention: Attention) -> Entry:
    """The entry of a table of `Tuning` for heads of such a dtype and width, with a bias or not."""
    widths = sorted(int(name) for name in table if name.isdigit())
    kind = str(next((w for w in widths if max(attention.sizes[-2:]) <= w), widths[-1]))
    if attention.dtype == torch.float32:
        kind = "float32"
    biased = f"{kind} biased"
    return table[biased if attention.bias is not None and biased in table else kind]


def block(row: tuple[int, ...]) -> Blocks:
    queries, keys, warps, stages, *flags = row
    return Blocks(queries, keys, warps, stages, *map(bool, flags))


def fitting(
    attention: Attention, blocks: tuple[Blocks, ...], described: bool, tuning: Tuning
) -> tuple[Blocks, ...]:
    """The blocks that fit in shared memory, with as many loads in flight as do, and are not much
    longer than the problem; at least one. Pipelined scores are masked before they are scaled, in
    one block of a causal loop."""
    *_, length, keys, _, _ = attention.sizes
    short = [
        b
        for b in (in_shared(attention, each, tuning) for each in blocks)
        if b is not None
        and b.queries <= max(32, 2 * length)
        and b.keys <= max(32, 2 * keys)
        and (described or not b.described)
        and not (b.ahead and (attention.scale <= 0 or (attention.causal and b.queries != b.keys)))
    ]
    return tuple(short) or (Blocks(32, 32, 4, 2),)


def key_blocks(attention: Attention, tuning: Tuning) -> tuple[Blocks, int]:
    """Blocks of keys of an only query, and how many of them a program takes in turn."""
    batch, heads, kept, _, keys, *widths = attention.sizes
    queries, count = padded(heads // kept), tuning.machine.multiprocessors
    whole, several = (block((queries, *row)) for row in tuning.key_blocks)
    bytes_of_keys = sum(map(padded, widths)) * attention.dtype.itemsize
    parts = -(-keys // whole.keys)
    if 1 < parts <= count / (batch * kept) and whole.keys * bytes_of_keys <= tuning.tile_bytes:
        return whole, 1
    blocks = in_shared(attention, several, tuning) or Blocks(queries, 32, 4, 2)
    parts = max(2, round(tuning.key_programs * count / (batch * kept)))
    return blocks, -(-keys // (parts * blocks.keys))


def in_shared(
    attention: Attention, blocks: Blocks, tuning: Tuning, keys_stay: bool = False
) -> Blocks | None:
    """The blocks with as many loads in flight as fit beyond the block that stays (of queries, or of
    keys for the gradients of keys and values), if those are two."""
    stay, moving = blocks.queries, blocks.keys
    if keys_stay:
        stay, moving = moving, stay
    row = sum(map(padded, attention.sizes[-2:])) * attention.dtype.itemsize
    more = 0 if attention.bias is None else stay * attention.dtype.itemsize
    room = (tuning.tile_bytes - stay * row) // (moving * (row + more))
    return replace(blocks, stages=min(blocks.stages, room)) if room >= 2 else None


def padded(width: int) -> int:
    """The width of a block that holds rows of `width`: a power of two."""
    return max(16, next_power_of_two(width))
