"""Substitution of templates for library calls in a program.

In: a program, a call that was found in it, the kernels for it. Out: `Selected`, changed. Invariant:
a replaced call computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import storage_bytes
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.templates.convolution.match_convolution import copy_of, reordered
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.split_k import split_product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.gemm.writers import product_kernel
from flambeau_inductor.templates.replacement import Buffers, FoundCall, Several, touching
from flambeau_inductor.tuning import MEASURED, Tuning


@dataclass(slots=True)
class Selected:
    """`kernels` by the names of the loops that they compute; `trusted`, `tuning`: see `select`."""

    program: Program
    library: Library | None = None
    trusted: bool = False
    tuning: Tuning = MEASURED
    kernels: dict[str, TritonKernel] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)

    def take(self, found: MatchedProduct | FoundCall, name: str, way: Several) -> None:
        """Put the kernels of the way `name` in the place of a call, and of the loop that reads
        it."""
        self.program = found.within(self.program, way)
        self.kernels |= {k.name: k for k in way.kernels if k.name in way.templates}
        self.chosen[found.result] = name


def facts(program: Program) -> Buffers:
    """Dtypes of all buffers, and how many elements an index of theirs may span."""
    dtypes = {b.name: b.layout.dtype for b in program.buffers}
    numels: dict[str, int] = {}
    for buffer in program.buffers:
        size = storage_bytes(buffer.layout)
        if isinstance(size, int):  # no product and no tiling here takes a buffer of an open size
            numels[buffer.name] = size // buffer.layout.dtype.itemsize
    return dtypes, numels


def way_of(program: Program, found: MatchedProduct, tile: GemmTile) -> Several:
    """The kernels of a product with such tiles. Raises TritonUnsupported: its reader has no Triton
    form."""
    dtypes, numels = facts(program)
    name = f"{found.result}_{tile.name}"
    device = next(b.layout.device for b in program.buffers if b.name == found.result)
    copy = f"{found.result}_weights"  # the same for all tiles
    read, ordered = found, reordered(found.product, copy)
    if ordered is not None:
        dtypes[copy], numels[copy] = ordered.dtype, ordered.sizes[2] * ordered.sizes[3]
        read = replace(found, product=ordered)
    if tile.parts > 1:
        way = split_product(read, tile, (dtypes, numels), name, device)
    else:
        kernel = product_kernel(read.product, found.epilogue, tile, (dtypes, numels), name)
        loop = replace(found.epilogue.loop, name=name)
        if found.reader is None:
            loop = touching(kernel, [found.result], prod(read.product.outer), read.product.dtype)
        way = Several((), (loop,), (kernel,), (name,))
    if ordered is None:
        return way
    buffer, loop = copy_of(found.product, copy, device)
    return way.after(buffer, loop, generate(loop, dtypes, numels))
