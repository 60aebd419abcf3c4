"""Products of a few vectors by a matrix of four bits an element, unpacked as it is read.

In: a `Product` whose right operand is `packed`, its `ProductEpilogue`, a tile of `tile_for`. Out: a
`TritonKernel`. Invariant: warps of a program share the inner dimension of 16 columns; elements are
those that the program would have written to memory, sums are in float32.

Weights of four bits are read in a quarter of the time of half precision, in which the arithmetic
units have two instructions for each: as many as unpacking takes, and none is left for the sums,
which the tensor units do for eight vectors in the time of one.
"""

from __future__ import annotations

import struct

import torch

from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.operands import TmaOperand
from flambeau_inductor.templates.gemm.problem import Product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.tuning import Tuning

ROWS, COLUMNS, DEPTH = 8, 16, 128
"""Of a program's tile, and terms that a warp multiplies in a turn."""
BUSY = 24
"""Warps of a multiprocessor that read enough at a time."""
POWERS = {torch.float16: 1024.0, torch.bfloat16: 128.0}
"""Powers of two in whose last bits a number of four bits is exact."""


def tile_for(product: Product, tuning: Tuning) -> GemmTile:
    """As many warps for each 16 columns as keep the device busy, each with some turns."""
    _, rows, columns, inner = product.sizes
    fewest, most = tuning.packed_warps
    programs = -(-rows // ROWS) * -(-columns // COLUMNS)
    turns = inner // (DEPTH * tuning.packed_turns)
    warps = fewest
    while (
        2 * warps <= min(most, turns) and warps * programs < BUSY * tuning.machine.multiprocessors
    ):
        warps *= 2
    return GemmTile(ROWS, COLUMNS, DEPTH, warps, 1)


class PackedWriter(ProductWriter):
    """The loop over the inner dimension is one device function."""

    def _inner(self, product: Product, tile: GemmTile, operands: tuple[TmaOperand, ...]) -> None:
        packed = product.packed
        assert packed is not None
        a, b, scales = product.a, product.b, packed.scales
        words = f"{self.names[b.buffer]}.to(tl.pointer_type(tl.int32)) + {b.offset}"
        of, steps = words, (0, 0)
        if scales is not None:
            of = f"{self.names[scales.buffer]} + {scales.offset}"
            steps = scales.strides[2], scales.strides[1]
        _, rows, columns, inner = product.sizes
        minus = _bits(-POWERS[product.dtype] - packed.zero, product.dtype)
        given = (
            f"{self.names[a.buffer]} + {a.offset}", a.strides[1], words, b.strides[2],
            of, *steps, "row_tile * YBLOCK", "column_tile * XBLOCK",
            rows, columns, inner, packed.group, f"'0x{minus:04x}{minus:04x}'", packed.zero,
            scales is not None, tile.warps,
        )  # fmt: skip
        self._line(f"total = fm.packed_product({', '.join(map(str, given))})")


def _bits(value: float, dtype: torch.dtype) -> int:
    """The bits of a number that half precision has exactly."""
    if dtype == torch.float16:
        return int.from_bytes(struct.pack("<e", value), "little")
    return int.from_bytes(struct.pack("<f", value)[2:], "little")
