"""Metadata of FX nodes: shapes, strides, dtypes, devices.

In: the values of FX nodes. Out: `Meta`. Invariant: sizes are ints, or expressions of the symbols of
one `GraphSizes`; without that a symbol raises `NotYetSymbolic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from flambeau_prims import NotYetSymbolic, TensorMeta
from torch import fx

from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.lowering.context import LoweringError, Meta
from flambeau_inductor.lowering.sizes import GraphSizes


def meta_of(value: Any, where: str, open_sizes: GraphSizes | None = None) -> Meta | None:
    """The metadata of a tensor-like value; None for anything else."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return None
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise NotYetSymbolic(f"{where}: a symbolic number in the graph")
    if isinstance(value, torch.Tensor):
        stride: Sequence[Any] = value.stride() if value.layout == torch.strided else ()
        if value.layout != torch.strided:
            raise LoweringError(f"{where}: a {value.layout} tensor")
    elif isinstance(value, TensorMeta):
        stride = value.stride
    else:
        raise LoweringError(f"{where}: a value of type {type(value).__name__}")
    sizes = (*value.shape, *stride)
    shape = tuple(value.shape)
    if not all(isinstance(n, int) for n in sizes):
        if open_sizes is None:
            raise NotYetSymbolic(f"{where}: a symbolic size among {sizes}")
        shape = tuple(map(open_sizes.size, shape))
        stride = tuple(map(open_sizes.size, stride))
    return Meta(shape, tuple(stride), value.dtype, torch.device(value.device))


def metas_of(node: fx.Node, open_sizes: GraphSizes | None = None) -> tuple[Meta | None, ...]:
    """Metadata of a node's results; a single result is a tuple of one."""
    value = value_of(node)
    if isinstance(value, tuple | list):
        return tuple(meta_of(v, node.name, open_sizes) for v in value)
    return (meta_of(value, node.name, open_sizes),)
