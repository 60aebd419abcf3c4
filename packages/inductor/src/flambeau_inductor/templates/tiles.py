"""Which tiles a matrix product is worth trying with, by a model of the machine.

In: the product's sizes and the width of its elements. Out: a few `Tile`s, the best by the model
first. Invariant: each fits in shared memory with all its stages, and holds at most as many
accumulators a thread as there are registers for.

The model: a tile's multiply-adds over the rate of the tensor units, which small tiles do not keep
busy, or its bytes over what a multiprocessor gets of the level 2 cache, whichever is longer, times
the number of waves that the device needs for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

MULTIPROCESSORS = 132
SHARED_BYTES = 220 * 1024
TENSOR_FLOPS = 5.8e12
"""Of one multiprocessor a second, in half precision with the largest tiles."""
CACHE_BYTES = 45e9
"""What one multiprocessor reads of the level 2 cache a second."""
START = 2e-6
"""Seconds before a program's first product."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A program computes `rows` x `columns` elements, `depth` of the inner dimension at a time,
    `stages` loads in flight; `parts` programs share the inner dimension of one tile."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    parts: int = 1

    @property
    def name(self) -> str:
        text = f"{self.rows}x{self.columns}x{self.depth}w{self.warps}s{self.stages}"
        return text if self.parts == 1 else f"{text}k{self.parts}"


SHAPES: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 256, 64, 8, 4),
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 4, 4),
    (64, 256, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 64, 128, 4, 3),
    (64, 32, 128, 4, 4),
    (32, 64, 128, 4, 4),
    (16, 128, 128, 4, 4),
    (16, 64, 128, 4, 5),
    (16, 32, 256, 4, 3),
)


def candidates(
    m: int, n: int, k: int, batch: int, itemsize: int, most: int = 6, parts: bool = True
) -> tuple[Tile, ...]:
    """The `most` tiles that the model prefers; `parts` allows to share the inner dimension."""
    found: list[tuple[float, Tile]] = []
    for rows, columns, depth, warps, stages in SHAPES:
        if itemsize == 4:
            depth, stages = max(16, depth // 2), min(stages, 3)
        if depth > max(16, _power_above(k)) or rows > max(16, _power_above(m)):
            continue
        if columns > max(16, _power_above(n)):
            continue
        if (rows + columns) * depth * itemsize * stages > SHARED_BYTES:
            continue
        tiles = -(-m // rows) * -(-n // columns) * batch
        for share in (1, 2, 4, 8, 16) if parts and batch == 1 else (1,):
            if share > 1 and (tiles * share > 2 * MULTIPROCESSORS or k // share < 4 * depth):
                continue
            tile = Tile(rows, columns, depth, warps, stages, share)
            found.append((seconds(tile, m, n, k, batch, itemsize), tile))
    found.sort(key=lambda pair: (pair[0], pair[1].name))
    return tuple(tile for _, tile in found[:most])


def seconds(tile: Tile, m: int, n: int, k: int, batch: int, itemsize: int) -> float:
    """What the model says of a tile."""
    programs = -(-m // tile.rows) * -(-n // tile.columns) * batch * tile.parts
    waves = -(-programs // MULTIPROCESSORS)
    inner = -(-k // (tile.depth * tile.parts)) * tile.depth
    area = tile.rows * tile.columns
    busy = float(min(1.0, area / (128 * 128)) ** 0.35) * (0.5 if itemsize == 4 else 1.0)
    arithmetic = 2 * area * inner / (TENSOR_FLOPS * busy)
    moving = (tile.rows + tile.columns) * inner * itemsize / CACHE_BYTES
    # parts are written in float32 and read again
    again = 2 * m * n * 4 * tile.parts / 3e12 + 3e-6 if tile.parts > 1 else 0.0
    return waves * (START + max(arithmetic, moving)) + again


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
