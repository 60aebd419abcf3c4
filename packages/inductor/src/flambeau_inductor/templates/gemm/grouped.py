"""Grouped products: several of different sizes in one launch, with an epilogue.

In: a library call; its `Product` of groups, `ProductEpilogue`, `GemmTile`. Out: the `Product`; a
`TritonKernel`. Invariant: where groups end is read by each program, never on the host; an empty
group is no tile, or zeros where the inner dimension is shared.

Groups are rows of the left operand, columns of the right one, or both along the inner dimension.
Tiles are numbered over all groups, each beginning with a new one; what follows the last is one more
group, with nothing to multiply. Groups that share the inner dimension are a batch, of which only
the last step is masked: whole steps are read through descriptors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch

from flambeau_inductor.codegen.triton.dtypes import HALF
from flambeau_inductor.codegen.triton.instructions import Dims
from flambeau_inductor.codegen.triton.kernel import WITH_DESCRIPTORS
from flambeau_inductor.codegen.triton.tiling import Dimension
from flambeau_inductor.ir.program import Argument, Extern, Layout, Ref
from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.operands import TmaOperand, masked
from flambeau_inductor.templates.gemm.problem import (
    Groups,
    Matrix,
    Product,
    dtype_of,
    matrix_of,
    row_major,
    static_of,
)
from flambeau_inductor.templates.gemm.tiles import GemmShape, GemmTile, candidates, seconds
from flambeau_inductor.tuning import MEASURED, Tuning

TARGET = "aten._grouped_mm.default"
NAMES = ("self", "mat2", "offs", "bias", "out_dtype")
MOST = 1024
"""Groups: a program looks at the ends of all of them."""


def grouped_of(step: Extern, layouts: Mapping[str, Layout]) -> Product | None:
    given = dict(zip(NAMES, step.args, strict=False)) | dict(step.kwargs)
    if given.get("bias") is not None or not step.results or step.results[0] is None:
        return None
    into = Ref(step.results[0])
    a, b, out = (static_of(each, layouts) for each in (given["self"], given["mat2"], into))
    if a is None or b is None or out is None:
        return None
    dtype = layouts[into.buffer].dtype
    if dtype not in HALF or any(dtype_of(given[n], layouts) != dtype for n in ("self", "mat2")):
        return None
    (left, _, _), (right, _, _), (shape, strides, _) = a, b, out
    if 0 in (*left, *right, *shape) or strides != row_major(shape):
        return None
    groups = _groups(given.get("offs"), layouts, (len(left), len(right)))
    if groups is None and (len(left), len(right)) != (3, 3):
        return None
    batch = shape[0] if len(shape) == 3 else 1
    operands = matrix_of(given["self"], a), matrix_of(given["mat2"], b)
    return Product(*operands, (batch, left[-2], right[-1], left[-1]), dtype, groups=groups)


def tiles_for(
    product: Product, described: bool, tuning: Tuning = MEASURED, most: int = 6
) -> tuple[GemmTile, ...]:
    """The tiles that the model prefers for groups of equal size, without programs that stay: how
    many tiles there are is not known when they begin."""
    groups = product.groups
    assert groups is not None
    rows, columns, inner = (
        -(-size // groups.count) if name == groups.along else size
        for name, size in zip(("rows", "columns", "inner"), product.sizes[1:], strict=True)
    )
    shape = GemmShape(rows, columns, inner, groups.count, product.dtype.itemsize)
    found = candidates(shape, 2 * most, parts=False, described=described, tuning=tuning)
    some = [tile for tile in found if not tile.resident][:most]
    if groups.along == "rows":  # of tiles that the model holds for equal, the taller were faster
        some.sort(key=lambda t: (seconds(t, shape, tuning), -t.rows))
    # two on a multiprocessor: one stores while the other multiplies
    pairs = [tile for tile in found if tile.resident > 1]
    sooner = (
        pairs
        and some
        and tuning.pairs_gain * seconds(pairs[0], shape, tuning) < seconds(some[0], shape, tuning)
    )
    both = (*pairs, *some) if sooner else (*some, *pairs)
    return tuple(replace(tile, resident=0) for tile in both)


def even_ends(product: Product) -> torch.Tensor:
    """Ends of groups of equal size, to measure with."""
    groups = product.groups
    assert groups is not None
    whole = product.sizes[{"rows": 1, "columns": 2, "inner": 3}[groups.along]]
    ends = [whole * (number + 1) // groups.count for number in range(groups.count)]
    return torch.tensor(ends, dtype=torch.int32)


def _groups(ends: Argument, layouts: Mapping[str, Layout], ranks: tuple[int, int]) -> Groups | None:
    along: dict[tuple[int, int], Literal["rows", "columns", "inner"]]
    along = {(2, 3): "rows", (3, 2): "columns", (2, 2): "inner"}
    static = static_of(ends, layouts)
    if ranks not in along or static is None or dtype_of(ends, layouts) != torch.int32:
        return None
    (count,), (step,), offset = static
    if not 0 < count <= MOST:
        return None
    assert isinstance(ends, Ref)
    return Groups(Matrix(ends.buffer, (0, 0, step), offset), count, along[ranks])


BLOCKS = {"rows": "YBLOCK", "columns": "XBLOCK"}
RAGGED = {"rows": "y", "columns": "x"}
"""The dimension of a tile that ends where its group does."""


class GroupedWriter(ProductWriter):
    """Looks up the group of its tile, and multiplies what is of that group."""

    def _grid(self, product: Product, tile: GemmTile) -> tuple[int, int]:
        """How many tiles there are down and across: of groups at most, each of which begins with a
        new one; what follows the last group counts as one more."""
        groups, found = product.groups, []
        sides = (("rows", product.sizes[1], tile.rows), ("columns", product.sizes[2], tile.columns))
        for along, size, block in sides:
            if groups is not None and groups.along == along:
                size += groups.count * (block - 1)
            found.append(-(-size // block))
        return found[0], found[1]

    def _places(self, product: Product, tile: GemmTile) -> None:
        groups = product.groups
        assert groups is not None and tile.parts == 1 and not tile.resident
        self.ragged = RAGGED.get(groups.along, "")
        if groups.along == "inner":
            super()._places(product, tile)
            self._shared_inner(product, groups)
            return
        self._line("place = program")
        self._tile(product, tile)
        of_tile = "row_tile" if groups.along == "rows" else "column_tile"
        whole = product.sizes[1 if groups.along == "rows" else 2]
        block, ends = BLOCKS[groups.along], self._ends(groups)
        self._lines(
            [
                f"number = tl.arange(0, {1 << groups.count.bit_length()})",
                f"ends = tl.load({ends} + number * {groups.ends.strides[2]},"
                f" number < {groups.count}, other={whole})",
                f"starts = tl.load({ends} + (number - 1) * {groups.ends.strides[2]},"
                f" (number > 0) & (number <= {groups.count}), other=0)",
                f"ends = tl.minimum(tl.maximum(ends, 0), {whole})",
                f"starts = tl.minimum(tl.maximum(starts, 0), {whole})",
                f"starts = tl.where(number > {groups.count}, {whole}, starts)",
                f"tiles = (tl.maximum(ends - starts, 0) + {block} - 1) // {block}",
                "until = tl.cumsum(tiles, 0)",
                f"here = (until - tiles <= {of_tile}) & ({of_tile} < until)",
                "product = tl.sum(tl.where(here, number, 0), 0)",
                f"first_of = starts + ({of_tile} - until + tiles) * {block}",
                "tile_first = tl.sum(tl.where(here, first_of, 0), 0)",
                "tile_end = tl.sum(tl.where(here, ends, 0), 0)",
                f"here = here & (number < {groups.count})",
                f"inner_end = tl.sum(tl.where(here, {product.sizes[3]}, 0), 0)",
            ]
        )
        wide = self._wide()
        if wide:
            self._line(f"product = product{wide}")
        for name, dimension, over in (("rows", "YBLOCK", "row"), ("columns", "XBLOCK", "column")):
            first = "tile_first" if name == groups.along else f"{over}_tile * {dimension}"
            self._line(f"{name} = ({first} + tl.arange(0, {dimension})){wide}")
        for axis in self.epilogue.batch:  # a batch of one
            self._line(f"{axis.var} = 0")
            self.axes[axis.var] = axis.var

    def _shared_inner(self, product: Product, groups: Groups) -> None:
        ends, step, whole = self._ends(groups), groups.ends.strides[2], product.sizes[3]
        self._lines(
            [
                f"inner_end = tl.load({ends} + product * {step})",
                f"inner_first = tl.load({ends} + (product - 1) * {step}, product > 0, other=0)",
                f"inner_end = tl.minimum(tl.maximum(inner_end, 0), {whole})",
                f"inner_first = tl.minimum(tl.maximum(inner_first, 0), {whole})",
                "inner_whole = inner_first"
                " + tl.maximum(inner_end - inner_first, 0) // KBLOCK * KBLOCK",
            ]
        )

    def _inner(self, product: Product, tile: GemmTile, operands: tuple[TmaOperand, ...]) -> None:
        assert product.groups is not None
        shared = product.groups.along == "inner"
        _, _, _, k = product.sizes
        rows, columns = self._edges(product, tile)
        left = ["(inner < inner_end - step)"] if shared else []
        if not shared and k % tile.depth:  # a number, of which the compiler sees what divides it
            left = [f"(inner < {k} - step)"]
        a_masks = [f"{text}[:, None]" for text in rows] + [f"{text}[None, :]" for text in left]
        b_masks = [f"{text}[None, :]" for text in columns] + [f"{text}[:, None]" for text in left]
        a, b, names = product.a, product.b, self.names
        wide = self._wide()
        through_pointers = [
            f"a = tl.load(a_at + step{wide} * {a.strides[2]}{masked(a_masks)})",
            f"b = tl.load(b_at + step{wide} * {b.strides[1]}{masked(b_masks)})",
            "total = tl.dot(a, b, total)",
        ]
        self._lines(
            [
                "total = tl.zeros([YBLOCK, XBLOCK], tl.float32)",
                f"inner = tl.arange(0, KBLOCK){wide}",
                f"a_at = {names[a.buffer]} + {a.offset} + product * {a.strides[0]}"
                f" + (rows * {a.strides[1]})[:, None] + (inner * {a.strides[2]})[None, :]",
                f"b_at = {names[b.buffer]} + {b.offset} + product * {b.strides[0]}"
                f" + (inner * {b.strides[1]})[:, None] + (columns * {b.strides[2]})[None, :]",
            ]
        )
        first = "inner_first" if shared else "0"
        plain = [f"for step in range({first}, inner_end, KBLOCK):", *_indented(through_pointers)]
        if not operands:
            self._lines(plain)
            return
        until = "inner_whole" if shared else "inner_end"
        reads = [
            f"{each.name} = d{number}.load({each.at}){each.transpose}"
            for number, each in enumerate(operands)
        ]
        through = [f"for step in range({first}, {until}, KBLOCK):"]
        through += _indented([*reads, "total = tl.dot(a, b, total)"])
        if shared:  # one step or none
            through.append("for step in tl.range(inner_whole, inner_end, KBLOCK, num_stages=1):")
            through += _indented(through_pointers)
        self._lines([f"if {WITH_DESCRIPTORS}:", *_indented(through), "else:", *_indented(plain)])

    def _edges(self, product: Product, tile: GemmTile) -> tuple[list[str], list[str]]:
        _, m, n, _ = product.sizes
        rows = [f"(rows < {m})"] if m % tile.rows else []
        columns = [f"(columns < {n})"] if n % tile.columns else []
        if self.ragged == "y":
            rows = ["(rows < tile_end)"]
        if self.ragged == "x":
            columns = ["(columns < tile_end)"]
        return rows, columns

    def _ends(self, groups: Groups) -> str:
        return f"{self.names[groups.ends.buffer]} + {groups.ends.offset}"

    def _dimension_index(self, dimension: Dimension, index: str) -> None:
        super()._dimension_index(dimension, index)
        if dimension.name == self.ragged:
            self._line(f"{dimension.name}mask = {dimension.name}index < tile_end")

    def _masks(self, dims: Dims) -> list[str]:
        return [
            f"{d.name}mask"
            for d in self.tiling.dimensions
            if d.name in dims and (d.masked or d.name == self.ragged)
        ]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
