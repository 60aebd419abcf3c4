"""Library calls with non-deterministic results.

In: a tensor graph. Out: nothing, or a `LoweringError` that names the first such call. Invariant:
only operators that torch documents as nondeterministic on the device at hand are refused
(`torch.use_deterministic_algorithms`).
"""

from __future__ import annotations

from flambeau_inductor.ir.tensors import LibraryCall, TensorGraph
from flambeau_inductor.lowering.context import LoweringError

UNORDERED = frozenset(
    {
        "aten.index_add.default",
        "aten.scatter_add.default",
        "aten.scatter_reduce.two",
        "aten.avg_pool2d_backward.default",
        "aten.max_pool2d_with_indices_backward.default",
        "aten._embedding_bag_dense_backward.default",
        "aten.upsample_bilinear2d_backward.default",
        "aten.grid_sampler_2d_backward.default",
        "aten.histc.default",
        "aten.bincount.default",
        "aten.put.default",
    }
)
"""On CUDA tensors; a CPU's threads write to places of their own."""


def refuse_unordered(graph: TensorGraph) -> None:
    """Raise for the first call on a GPU that adds in whatever order threads come."""
    for item in graph.order:
        if not isinstance(item, LibraryCall) or item.target not in UNORDERED:
            continue
        results = [node for node in graph.results[item] if node is not None]
        if any(node.device.type == "cuda" for node in results):
            raise LoweringError(
                f"{item.target} ({', '.join(item.origins)}) adds in the order in which threads"
                " arrive, and `deterministic` was asked for"
            )
