"""Products of sparse matrices of the program's, whose places and values are inputs of the graph.

In: a product of a sparse COO matrix with a dense one. Out: rows of the dense one, by the values,
added where they belong. Invariant: the matrix itself is no part of the graph; how many values it
holds is an open size, and that it is such a matrix is guarded.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture.polyfills import sized
from flambeau_capture.source import Called
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.tensors.tensor import TensorValue

PRODUCTS = ("_sparse_mm", "mm", "spmm", "dsmm", "hspmm", "matmul", "__matmul__", "mv")
SUMS = ("addmm", "_sparse_addmm")
_DTYPES = (torch.float32, torch.float64)


def is_matrix_of_places(tensor: Any) -> bool:
    """Whether it is a sparse COO matrix of numbers that no derivative is taken by."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Buffer) and tensor.layout is torch.sparse_coo
    if not plain or tensor.dtype not in _DTYPES or tensor.requires_grad:
        return False
    return bool(tensor.sparse_dim() == 2 and not tensor.dense_dim())


def places(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._indices().contiguous()


def values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor._values()


def rows(tensor: torch.Tensor) -> int:
    return tensor.shape[0]


def columns(tensor: torch.Tensor) -> int:
    return tensor.shape[1]


_PARTS = (places, values, rows, columns)


def product(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """Of a sparse matrix that the graph has not written to, and a dense one."""
    *added, matrix, dense = args if len(args) == (3 if name in SUMS else 2) else (None, None)
    if kwargs or not isinstance(matrix, TensorValue) or not isinstance(dense, TensorValue):
        return None
    own, source = matrix.real, matrix.source
    if own is None or source is None or not is_matrix_of_places(own):
        return None
    graphs = tx.graph, tx.graph.outermost
    if any(graph.effects.writes_in(own.layout) for graph in graphs):
        return None
    if matrix.written_data is not None or matrix.calls:
        return None
    if torch.is_autocast_enabled(own.device.type):
        return None
    known = dense.fake
    if known.layout is not torch.strided or known.dtype != own.dtype or known.dim() not in (1, 2):
        return None
    tx.guard(source, "CALL", is_matrix_of_places, "is a sparse matrix")
    parts = [tx.wrap(part(own), Called(source, part)) for part in _PARTS]
    found = tx.call_python(sized.sparse_product, [*parts, dense])
    return tx.binary("+", added[0], found) if added else found
