"""Tile candidates of a matrix product, by a model of the machine.

In: the product's sizes and the width of its elements. Out: a few `GemmTile`s, the best by the model
first. Invariant: each fits in shared memory with all its stages.

The model: a tile's multiply-adds over the rate of the tensor units, which small tiles do not keep
busy, or its bytes over a multiprocessor's rate of the level 2 cache, whichever is longer, times the
waves that the device needs for all; at least what reading the operands from memory takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from flambeau_inductor.tuning import MEASURED, Tuning
from flambeau_inductor.tuning.machine import MMA_DEPTH


@dataclass(frozen=True, slots=True)
class GemmTile:
    """A program computes `rows` x `columns` elements, `depth` of the inner dimension at a time,
    `stages` loads in flight; `parts` programs share the inner dimension of one tile. With
    `described`, operands are read through tensor descriptors (sm_90 and newer). `resident` programs
    of each of the device's `multiprocessors` take one tile after the other, if not 0."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    parts: int = 1
    described: bool = False
    resident: int = 0
    multiprocessors: int = MEASURED.machine.multiprocessors

    @property
    def name(self) -> str:
        text = f"{self.rows}x{self.columns}x{self.depth}w{self.warps}s{self.stages}"
        text += "d" * self.described + (f"r{self.resident}" if self.resident else "")
        return text if self.parts == 1 else f"{text}k{self.parts}"

    def share(self, inner: int) -> int:
        """What one part takes of an inner dimension, in whole steps."""
        return -(-inner // (self.depth * self.parts)) * self.depth

    def programs(self, tiles: int) -> int:
        """How many programs compute `tiles` of these, all parts counted."""
        whole = tiles * self.parts
        return min(whole, self.resident * self.multiprocessors) if self.resident else whole


@dataclass(frozen=True, slots=True)
class GemmShape:
    """Sizes of a product, and bytes of an element. `runs`: how many runs the inner dimension of a
    convolution falls into, each of which takes whole steps; 0 where it is none."""

    rows: int
    columns: int
    inner: int
    batch: int
    itemsize: int
    runs: int = 0


def candidates(
    shape: GemmShape,
    most: int = 6,
    parts: bool = True,
    described: bool = False,
    tuning: Tuning = MEASURED,
) -> tuple[GemmTile, ...]:
    """The `most` tiles that the model prefers; `parts` allows to share the inner dimension. With
    `described`, as many with descriptors and half as many without; of those of a convolution, a
    third is without."""
    if shape.runs:
        first = _best(tuning.window_tiles, described, shape, parts, tuning)
        again = [replace(tile, described=False) for tile in first[: most // 3] if described]
        return (*first[: most - len(again)], *again)
    small = tuning.small_tiles if shape.batch > 1 or shape.inner < tuning.short_inner else ()
    plain = _best((*tuning.product_tiles, *small), False, shape, parts, tuning)
    if not described:
        return plain[:most]
    table = tuning.described_tiles
    if shape.inner <= tuning.short_inner:
        table += tuning.short_described_tiles
    return (*_best(table, True, shape, parts, tuning)[:most], *plain[: most // 2])


def _best(
    table: Iterable[tuple[int, ...]], described: bool, shape: GemmShape, parts: bool, tuning: Tuning
) -> tuple[GemmTile, ...]:
    """The tiles that fit the sizes and the machine, the best by the model first."""
    count = tuning.machine.multiprocessors
    m, n, k, batch, itemsize = shape.rows, shape.columns, shape.inner, shape.batch, shape.itemsize
    found: list[tuple[float, GemmTile]] = []
    for rows, columns, depth, warps, stages, *others in table:
        (resident,) = others or (0,)
        if itemsize == 4:
            depth, stages = max(MMA_DEPTH, depth // 2), min(stages, 3)
        sides = ((rows, m), (columns, n), (depth, k // max(1, shape.runs)))
        if any(side > max(MMA_DEPTH, 2 * size - 1) for side, size in sides):  # half of it is empty
            continue
        fitting = fit(GemmTile(rows, columns, depth, warps, stages), itemsize, tuning)
        if fitting is None:
            continue
        stages = fitting.stages
        tiles = -(-m // rows) * -(-n // columns) * batch
        if resident and tiles <= resident * count:
            continue
        for share in (1, 2, 4, 8, 16) if parts and batch == 1 and not resident else (1,):
            if share > 1 and (tiles * share > 2 * count or k // share < 4 * depth):
                continue
            tile = GemmTile(rows, columns, depth, warps, stages, share, described, resident, count)
            found.append((seconds(tile, shape, tuning), tile))
    found.sort(key=lambda pair: pair[0])  # of equals the table's first
    return tuple(tile for _, tile in found)


def fit(tile: GemmTile, itemsize: int, tuning: Tuning) -> GemmTile | None:
    """The tile with as many loads in flight as find room in shared memory, if those are two."""
    room = tuning.tile_bytes // ((tile.rows + tile.columns) * tile.depth * itemsize)
    return replace(tile, stages=min(tile.stages, room)) if room >= 2 else None


def seconds(tile: GemmTile, shape: GemmShape, tuning: Tuning = MEASURED) -> float:
    """What the model says of a tile."""
    count, runs = tuning.machine.multiprocessors, max(1, shape.runs)
    m, n, k, batch, itemsize = shape.rows, shape.columns, shape.inner, shape.batch, shape.itemsize
    programs = -(-m // tile.rows) * -(-n // tile.columns) * batch * tile.parts
    waves: float = -(-programs // count)
    if tile.resident > 1:  # tiles of two programs overlap: the last ones do not wait for a wave
        waves = max(1.0, programs / count)
    inner = tile.share(runs * -(-(k // runs) // tile.depth) * tile.depth)
    area = tile.rows * tile.columns
    busy = float(min(1.0, area / tuning.full_tile) ** tuning.tile_power) * (
        0.5 if itemsize == 4 else 1.0
    )
    arithmetic = 2 * area * inner / (tuning.tensor_operations * busy)
    moving = (tile.rows + tile.columns) * inner * itemsize / tuning.cache_rate
    each = max(arithmetic, moving)
    held = (tile.rows + tile.columns) * tile.depth * itemsize * tile.stages
    if tile.described and 2 * held > tuning.tile_bytes:
        # the only program there: while it stores, nothing is multiplied
        each += area * itemsize * count / tuning.memory_rate
    start = tuning.program_start
    whole = start + waves * each if tile.resident else waves * (start + each)
    # parts are written in float32 and read again
    partial = 2 * m * n * 4 * tile.parts
    again = partial / tuning.parts_rate + tuning.launch if tile.parts > 1 else 0.0
    least = start + (m * k + k * n + m * n) * batch * itemsize / tuning.memory_rate
    return max(least, whole) + again
