"""A program in which kernels of templates take the places of library calls.

In: a program, a call that was found in it, the kernels for it. Out: `Selected`, changed. Invariant:
a replaced call computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import storage_bytes
from flambeau_inductor.runtime.gpu_launch import Library
from flambeau_inductor.templates.attentions import FoundAttention, touching
from flambeau_inductor.templates.backwards import FoundBackward
from flambeau_inductor.templates.matmul import product_kernel
from flambeau_inductor.templates.parts import Split, split_product
from flambeau_inductor.templates.products import Found, fused_steps
from flambeau_inductor.templates.tiles import Tile

Way = tuple[TritonKernel, ...] | Split
"""The kernels of a product."""


@dataclass(slots=True)
class Selected:
    """`kernels` by the names of the loops that they compute; `trusted` as `select` is told."""

    program: Program
    library: Library | None = None
    trusted: bool = False
    kernels: dict[str, TritonKernel] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)


def tf32() -> bool:
    """Whether the user allows products of float32 to be computed as TF32."""
    return torch.get_float32_matmul_precision() != "highest"


def facts(program: Program) -> tuple[dict[str, torch.dtype], dict[str, int]]:
    """Dtypes of all buffers, and how many elements an index of theirs may span."""
    dtypes = {b.name: b.layout.dtype for b in program.buffers}
    numels: dict[str, int] = {}
    for buffer in program.buffers:
        size = storage_bytes(buffer.layout)
        if isinstance(size, int):  # no product and no tiling here takes a buffer of an open size
            numels[buffer.name] = size // buffer.layout.dtype.itemsize
    return dtypes, numels


def way_of(program: Program, found: Found, tile: Tile) -> Way:
    """The kernels of a product with such tiles.

    Raises:
        TritonUnsupported: the loop behind it has no Triton form.
    """
    dtypes, numels = facts(program)
    name = f"{found.result}_{tile.name}"
    if tile.parts > 1:
        device = next(b.layout.device for b in program.buffers if b.name == found.result)
        return split_product(found, tile, dtypes, numels, name, device)
    return (product_kernel(found.product, found.epilogue, tile, dtypes, numels, name),)


def with_product(selected: Selected, found: Found, way: Way) -> None:
    """Put the kernels of a product in the place of a call, and of the loop behind it."""
    program = selected.program
    loops: tuple[Loop, ...]
    if isinstance(way, Split):
        loops = way.loops
        selected.program = way.within(fused_steps(program, found, loops))
        selected.kernels[loops[0].name] = way.kernels[0]
        return
    kernel = way[0]
    if found.reader is None:
        read = [name for name in kernel.arguments if name != found.result]
        points = prod(found.product.outer)
        loop = touching(kernel.name, read, [found.result], points, found.product.dtype)
    else:
        loop = replace(found.epilogue.loop, name=kernel.name)
    selected.program = fused_steps(program, found, (loop,))
    selected.kernels[loop.name] = kernel


def with_attention(selected: Selected, found: FoundAttention, kernel: TritonKernel) -> None:
    """Put `kernel` in the place of a call."""
    loop = found.told(kernel.name, found.attention.dtype)
    selected.program = found.within(selected.program, loop)
    selected.kernels[kernel.name] = kernel


def with_backward(
    selected: Selected, found: FoundBackward, kernels: Sequence[TritonKernel]
) -> None:
    """Put `kernels` in the place of a call."""
    loops = found.told(kernels)
    selected.program = found.within(selected.program, loops)
    for loop, kernel in zip(loops, kernels, strict=True):
        selected.kernels[loop.name] = kernel
