"""Choice of the product template by kind.

In: a `Product`, its `ProductEpilogue`, a `GemmTile`. Out: a `TritonKernel`. Invariant: whichever
writes it, the epilogue sees sums of float32, rounded once to the result's dtype.
"""

from __future__ import annotations

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.convolution.depthwise import DepthwiseWriter
from flambeau_inductor.templates.gemm.epilogue import ProductEpilogue
from flambeau_inductor.templates.gemm.grouped import GroupedWriter
from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.problem import Product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.replacement import Buffers


def product_kernel(
    product: Product,
    epilogue: ProductEpilogue,
    tile: GemmTile,
    buffers: Buffers,
    name: str = "product",
) -> TritonKernel:
    """The kernel; `buffers` are all that it touches."""
    writer = ProductWriter
    if product.groups is not None:
        writer = GroupedWriter
    elif product.window is not None and product.window.depthwise:
        writer = DepthwiseWriter
    return writer.written(product, epilogue, tile, buffers, name)
