"""The Triton kernel of a product, by the writer for its kind.

In: a `Product`, its `Epilogue`, a `Tile`. Out: a `TritonKernel`. Invariant: whichever writes it,
what follows sees sums of float32, rounded once to the result's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.templates.depthwise import DepthwiseWriter
from flambeau_inductor.templates.epilogue import Epilogue
from flambeau_inductor.templates.grouped import GroupedWriter
from flambeau_inductor.templates.matmul import ProductWriter, written
from flambeau_inductor.templates.product import Product
from flambeau_inductor.templates.tiles import Tile

TemplateKernel = TritonKernel


def product_kernel(
    product: Product,
    epilogue: Epilogue,
    tile: Tile,
    dtypes: Mapping[str, torch.dtype],
    numels: Mapping[str, int],
    name: str = "product",
) -> TritonKernel:
    """The kernel. `dtypes` and `numels` are of all the buffers that it touches."""
    return written(writer_of(product), product, epilogue, tile, dtypes, numels, name)


def writer_of(product: Product) -> type[ProductWriter]:
    """What writes the kernels of such a product."""
    if product.groups is not None:
        return GroupedWriter
    if product.window is not None and product.window.depthwise:
        return DepthwiseWriter
    return ProductWriter
