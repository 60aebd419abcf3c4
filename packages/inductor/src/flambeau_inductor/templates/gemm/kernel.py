"""Matrix product template with epilogue: swizzled tiles, a persistent kernel where resident.

In: a `Product`, its `ProductEpilogue`, a `GemmTile`. Out: a `TritonKernel`. Invariant: products are
summed in float32, scaled, added to and rounded once to the result's dtype before the epilogue, as
the library does; float32 operands are multiplied as float32 unless TF32 is allowed.

A described tile is read through tensor descriptors where the kernel has them, else through
pointers. Where the rows of the left operand are windows of images the product is a convolution.

Products of a few vectors by a matrix of four bits an element, unpacked as it is read. In: a
`Product` whose right operand is `packed`, its `ProductEpilogue`, a tile of `tile_for`. Out: a
`TritonKernel`. Invariant: warps of a program share the inner dimension of 16 columns; elements are
those that the program would have written to memory, sums are in float32. Weights of four bits are
read in a quarter of the time of half precision, in which the arithmetic units have two instructions
for each: as many as unpacking takes, and none is left for the sums, which the tensor units do for
eight vectors in the time of one.
"""

from __future__ import annotations

import struct

import torch

from flambeau_inductor.codegen.triton.dtypes import pointer, register
from flambeau_inductor.codegen.triton.instructions import INT32_LIMIT
from flambeau_inductor.codegen.triton.kernel import (
    WITH_DESCRIPTORS,
    KernelWriter,
    TritonKernel,
    kernel_of,
)
from flambeau_inductor.codegen.triton.tiling import Dimension, Tiling
from flambeau_inductor.indexing import Expr
from flambeau_inductor.ir.loops import IndexValue, Instr, Load, Store
from flambeau_inductor.templates.call_replacement import Buffers
from flambeau_inductor.templates.gemm.epilogue import ProductEpilogue
from flambeau_inductor.templates.gemm.operands import TmaOperand, masked, operands_of, reads_of
from flambeau_inductor.templates.gemm.problem import Product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.tuning import Tuning

GROUP = 8
"""Rows of tiles whose programs run together (the swizzle of P. Tillet's tutorial)."""


class ProductWriter(KernelWriter):
    """Writes the loop over the inner dimension, then the epilogue's instructions."""

    @classmethod
    def written(
        cls,
        product: Product,
        epilogue: ProductEpilogue,
        tile: GemmTile,
        buffers: Buffers,
        name: str,
    ) -> TritonKernel:
        """The kernel by this kind of writer."""
        rows = Dimension("y", epilogue.rows, tile.rows)
        columns = Dimension("x", epilogue.columns, tile.columns)
        tiling = Tiling((rows, columns), tile.warps)
        return cls(epilogue.loop, *buffers, tiling).product(product, epilogue, tile, name)

    def product(
        self, product: Product, epilogue: ProductEpilogue, tile: GemmTile, name: str
    ) -> TritonKernel:
        self.epilogue = epilogue
        self._facts()
        others = [
            i.buffer
            for i in self.loop.body
            if isinstance(i, Load | Store) and i.buffer != epilogue.result
        ]
        read = [matrix.buffer for matrix in product.operands]
        self.arguments = tuple(dict.fromkeys([*read, *others]))
        self.names = {buffer: f"b{i}" for i, buffer in enumerate(self.arguments)}
        down, across = self._grid(product, tile)
        tiles = down * across * product.sizes[0]
        whole, programs = tiles * tile.parts, tile.programs(tiles)
        operands = operands_of(product, tile) if tile.described else ()
        if tile.resident:
            turns = f"tl.range(tl.program_id(0), {whole}, {programs}, flatten=True)"
            self._line(f"for program in {turns}:")
            self.indent = "        "
        else:
            self._line("program = tl.program_id(0)")
        self._places(product, tile)
        self._inner(product, tile, operands)
        self._dimension_index(self._dimension("y"), "rows")
        self._dimension_index(self._dimension("x"), "columns")
        if tile.parts == 1:
            self._rounded_product(product)
        self._straight(range(len(self.loop.body)))
        blocks = (("YBLOCK", tile.rows), ("XBLOCK", tile.columns), ("KBLOCK", tile.depth))
        pointers = {buffer: pointer(self.dtypes[buffer]) for buffer in self.arguments}
        dtype = pointer(product.dtype)[1:]
        descriptors = tuple(each.descriptor(self.arguments, dtype) for each in operands)
        made = (name, self.lines, pointers, blocks, programs, tile.warps)
        return kernel_of(*made, tile.stages, descriptors)

    def _grid(self, product: Product, tile: GemmTile) -> tuple[int, int]:
        return -(-product.sizes[1] // tile.rows), -(-product.sizes[2] // tile.columns)

    def _tile(self, product: Product, tile: GemmTile) -> None:
        down, across = self._grid(product, tile)
        self._line(f"first = place // {GROUP * across} * {GROUP}")
        self._line(f"height = tl.minimum({down} - first, {GROUP})")
        self._line(f"within = place % {GROUP * across}")
        self._line("row_tile = first + within % height")
        self._line("column_tile = within // height")

    def _wide(self) -> str:
        """The conversion of positions to 64 bits, where they need it."""
        return ".to(tl.int64)" if max(self.numels.values(), default=0) > INT32_LIMIT else ""

    def _places(self, product: Product, tile: GemmTile) -> None:
        """Which part, which product and which tile of it this program computes."""
        down, across = self._grid(product, tile)
        wide = self._wide()
        self._line(f"part = program % {tile.parts}")
        self._line(f"place = program // {tile.parts}")
        self._line(f"product = place // {down * across}{wide}")
        self._line(f"place = place % {down * across}")
        self._tile(product, tile)
        self._line(f"rows = (row_tile * YBLOCK + tl.arange(0, YBLOCK)){wide}")
        self._line(f"columns = (column_tile * XBLOCK + tl.arange(0, XBLOCK)){wide}")
        below = 1
        for axis in reversed(self.epilogue.batch):
            size = int(axis.size) if isinstance(axis.size, int) else 0
            text = "product" if below == 1 else f"(product // {below})"
            self._line(f"{axis.var} = {text} % {size}")
            self.axes[axis.var] = axis.var
            below *= size

    def _inner(self, product: Product, tile: GemmTile, operands: tuple[TmaOperand, ...]) -> None:
        """`total`: the sum of the products, in float32."""
        base = self.indent
        share = tile.share(product.padded(tile.depth))
        described = {each.name: (number, each) for number, each in enumerate(operands)}
        reads = dict(zip("ab", reads_of(product, tile, self.names), strict=True))
        precision = "tf32" if product.tf32 else "ieee"
        dot = f"total = tl.dot(a, b, total, input_precision={precision!r})"
        self._line("total = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
        self._line("inner = tl.arange(0, KBLOCK)")
        for name, each in reads.items():
            if name in described:
                self._line(f"if not {WITH_DESCRIPTORS}:")
                self._lines([f"    {line}" for line in each.before])
            else:
                self._lines(each.before)
        if tile.parts == 1:
            self._line(f"for step in range(0, {share}, KBLOCK):")
        else:  # parts take turns: what they read at a time lies side by side
            whole, stride = share * tile.parts, f"{tile.parts} * KBLOCK"
            self._line(f"for step in range(part * KBLOCK, {whole}, {stride}):")
        self.indent = base + "    "
        for name, each in reads.items():
            if name in described:
                number, operand = described[name]
                self._line(f"if {WITH_DESCRIPTORS}:")
                self._line(f"    {name} = d{number}.load({operand.at})" + operand.transpose)
                self._line("else:")
                self._lines([f"    {line}" for line in each.inside])
            else:
                self._lines(each.inside)
        self._line(dot)
        self.indent = base

    def _rounded_product(self, product: Product) -> None:
        """`product_value`: the product as the library would have stored it."""
        text = "total" if product.alpha == 1 else f"total * {float(product.alpha)!r}"
        if (added := product.added) is not None and product.beta != 0:
            masks = self._masks(frozenset({"y", "x"}))
            address = (
                f"{self.names[added.buffer]} + {added.offset} + product * {added.strides[0]}"
                f" + yindex * {added.strides[1]} + xindex * {added.strides[2]}"
            )
            self._line(f"added = tl.load({address}{masked(masks)}).to(tl.float32)")
            scale = "" if product.beta == 1 else f" * {float(product.beta)!r}"
            text = f"{text} + added{scale}"
        self._line(f"product_value = ({text}).to({register(product.dtype)})")

    def _access_dims(self, instr: Load | IndexValue | Store) -> frozenset[str]:
        if isinstance(instr, Load) and instr.buffer == self.epilogue.result:
            return frozenset({"y", "x"})  # the tile is there whole, also of one row
        return super()._access_dims(instr)

    def _value(self, i: int, instr: Instr) -> str:
        if isinstance(instr, Load) and instr.buffer == self.epilogue.result:
            return "product_value"
        return super()._value(i, instr)

    def _index_dims(self, index: Expr) -> frozenset[str]:
        scalars = {axis.var for axis in self.epilogue.batch}
        found: set[str] = set()
        for name in index.vars - scalars:
            if name.startswith("%"):
                found |= self.dims[int(name[1:])]
            else:
                found.add(self.dimension_of[name])
        return frozenset(found)


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
