"""Choice of the product template by kind.

In: a `Product`, its `ProductEpilogue`, a `GemmTile`. Out: a `TritonKernel`. Invariant: whichever
writes it, the epilogue sees sums of float32, rounded once to the result's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.tiling import Dimension, Tiling
from flambeau_inductor.templates.convolution.depthwise import DepthwiseWriter
from flambeau_inductor.templates.gemm.epilogue import ProductEpilogue
from flambeau_inductor.templates.gemm.grouped import GroupedWriter
from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.problem import Product
from flambeau_inductor.templates.gemm.tiles import GemmTile


def product_kernel(
    product: Product,
    epilogue: ProductEpilogue,
    tile: GemmTile,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "product",
) -> TritonKernel:
    """The kernel. `dtypes` and `numels` are of all the buffers that it touches."""
    return written(writer_of(product), product, epilogue, tile, dtypes, numels, name)


def writer_of(product: Product) -> type[ProductWriter]:
    if product.groups is not None:
        return GroupedWriter
    if product.window is not None and product.window.depthwise:
        return DepthwiseWriter
    return ProductWriter


def written(
    writer: type[ProductWriter],
    product: Product,
    epilogue: ProductEpilogue,
    tile: GemmTile,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str,
) -> TritonKernel:
    """The same by a kind of writer."""
    rows = Dimension("y", epilogue.rows, tile.rows)
    columns = Dimension("x", epilogue.columns, tile.columns)
    tiling = Tiling((rows, columns), tile.warps)
    return writer(epilogue.loop, dtypes, numels, tiling).product(product, epilogue, tile, name)
