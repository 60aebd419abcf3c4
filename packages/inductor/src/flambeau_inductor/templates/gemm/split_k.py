"""Split-K: the inner dimension of a product shared by several programs, in two kernels.

In: a `MatchedProduct` and a tile with parts. Out: `Several`: the kernel that leaves each part's
sums in memory, the loop that adds them and goes on as the epilogue does, and the workspace between
them. Invariant: parts are added in order, so that the result is the same every time.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.indexing import Var, as_expr
from flambeau_inductor.ir.loops import (
    Axis,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import LoopBody, renumbered, row_major
from flambeau_inductor.ir.program import Buffer, Layout
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.templates.call_replacement import Buffers, Kept, Several, touching
from flambeau_inductor.templates.gemm.epilogue import ProductEpilogue
from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.problem import Product
from flambeau_inductor.templates.gemm.tiles import GemmTile


def split_product(
    found: MatchedProduct, tile: GemmTile, buffers: Buffers, name: str, device: torch.device
) -> Several:
    """The two kernels of a product in parts.

    Raises:
        TritonUnsupported: the epilogue has no Triton form.
    """
    _, m, n, _ = found.product.sizes
    partials = f"{name}_sums"
    layout = Layout((tile.parts, m, n), (m * n, n, 1), torch.float32, device)
    (dtypes, numels), size = buffers, tile.parts * m * n
    buffers = {**dtypes, partials: torch.float32}, {**numels, partials: size}
    first = partial_kernel(found.product, tile, partials, buffers, name)
    made = touching(first, [partials], size, found.product.dtype)
    second = _rest(found.product, found.epilogue, partials, tile.parts, f"{name}_rest")
    kernel = generate(second, *buffers)
    between = Kept(Buffer(partials, layout), 0, 1)
    return Several((between,), (made, second), (first, kernel), (name,))


def _rest(
    product: Product, epilogue: ProductEpilogue, partials: str, parts: int, name: str
) -> Loop:
    _, m, n, _ = product.sizes
    row, column = row_major(epilogue.rows), row_major(epilogue.columns)
    made = LoopBody()
    put = made.append
    wide = torch.float32
    load = put(Load(partials, Var("part") * (m * n) + row * n + column, wide))
    value = put(Reduce("sum", load, wide))
    if product.alpha != 1:
        value = put(Point("mul", (value, put(Const(product.alpha, wide))), wide))
    if (added := product.added) is not None and product.beta != 0:
        at = row * added.strides[1] + column * added.strides[2] + added.offset
        other = put(Load(added.buffer, at, product.dtype))
        if product.dtype != wide:
            other = put(Point("cast", (other,), wide))
        if product.beta != 1:
            other = put(Point("mul", (other, put(Const(product.beta, wide))), wide))
        value = put(Point("add", (value, other), wide))
    if product.dtype != wide:
        value = put(Point("cast", (value,), product.dtype))
    new: dict[ValueId, ValueId] = {}
    for position, instr in enumerate(epilogue.body):
        if isinstance(instr, Load) and instr.buffer == epilogue.result:
            new[position] = value
        else:
            new[position] = put(renumbered(instr, new))
    ones = {axis.var: as_expr(0) for axis in epilogue.batch}
    body = tuple(
        replace(i, index=i.index.substitute(ones))
        if isinstance(i, Load | Store | IndexValue)
        else i
        for i in made.body
    )
    axes = (*epilogue.rows, *epilogue.columns)
    return normalised(Loop(name, axes, (Axis("part", parts),), body))


def partial_kernel(
    product: Product, tile: GemmTile, partials: str, buffers: Buffers, name: str = "parts"
) -> TritonKernel:
    """The kernel that leaves each part's sums in `partials`: [parts, rows, columns] of float32."""
    _, m, n, _ = product.sizes
    at = Var("part") * (m * n) + Var("y0") * n + Var("x0")
    body: tuple[Instr, ...] = (
        Load("", Var("y0") * n + Var("x0"), torch.float32),
        Store(partials, at, 0),
    )
    epilogue = ProductEpilogue(
        (Axis("part", tile.parts),), (Axis("y0", m),), (Axis("x0", n),), body, ""
    )
    return PartWriter.written(product, epilogue, tile, buffers, name)


class PartWriter(ProductWriter):
    """The same without scaling: `part` is known already."""

    def _places(self, product: Product, tile: GemmTile) -> None:
        held = self.epilogue
        self.epilogue = ProductEpilogue((), held.rows, held.columns, held.body, held.result)
        super()._places(product, tile)
        self.epilogue = held
        self.axes["part"] = "part"

    def _value(self, i: int, instr: Instr) -> str:
        if isinstance(instr, Load) and instr.buffer == self.epilogue.result:
            return "total"
        return super()._value(i, instr)
