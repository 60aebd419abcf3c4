"""Substitution of templates for library calls in a program.

In: a program, a call that was found in it, the kernels for it. Out: `Selected`, changed. Invariant:
a replaced call computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import storage_bytes
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.templates.attention.match_attention import (
    FoundAttention,
    FoundBackward,
    touching,
)
from flambeau_inductor.templates.convolution.match_convolution import copy_of, reordered
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, fused_steps
from flambeau_inductor.templates.gemm.split_k import Several, split_product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.gemm.writers import product_kernel
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


def facts(program: Program) -> tuple[dict[str, torch.dtype], dict[str, int]]:
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
    product = reordered(found.product, copy)
    if product is not None:
        dtypes[copy], numels[copy] = product.dtype, product.sizes[2] * product.sizes[3]
        buffer, loop = copy_of(found.product, copy, device)
        copying = generate(loop, dtypes, numels)
        rest = _kernels(replace(found, product=product), tile, dtypes, numels, name, device)
        return rest.after(buffer, loop, copying, 0)
    return _kernels(found, tile, dtypes, numels, name, device)


def _kernels(
    found: MatchedProduct,
    tile: GemmTile,
    dtypes: dict[str, torch.dtype],
    numels: dict[str, int],
    name: str,
    device: torch.device,
) -> Several:
    if tile.parts > 1:
        return split_product(found, tile, dtypes, numels, name, device)
    kernel = product_kernel(found.product, found.epilogue, tile, dtypes, numels, name)
    if found.reader is None:
        read = [each for each in kernel.arguments if each != found.result]
        points = prod(found.product.outer)
        loop = touching(kernel.name, read, [found.result], points, found.product.dtype)
    else:
        loop = replace(found.epilogue.loop, name=kernel.name)
    return Several((), (loop,), (kernel,), (kernel.name,))


def with_product(selected: Selected, found: MatchedProduct, way: Several) -> None:
    """Put the kernels of a product in the place of a call, and of the loop that reads it."""
    selected.program = way.within(fused_steps(selected.program, found, way.loops))
    for kernel in way.kernels:
        if kernel.name in way.templates:
            selected.kernels[kernel.name] = kernel


def with_attention(selected: Selected, found: FoundAttention, kernel: TritonKernel) -> None:
    selected.program = found.within(selected.program, found.loop(kernel.name))
    selected.kernels[kernel.name] = kernel


def with_backward(
    selected: Selected, found: FoundBackward, kernels: Sequence[TritonKernel]
) -> None:
    loops = found.loops(kernels)
    selected.program = found.within(selected.program, loops)
    for loop, kernel in zip(loops, kernels, strict=True):
        selected.kernels[loop.name] = kernel
