"""Subscripts of tensors with NumPy's arrays and scalars in them.

In: the arguments of `tensor[...]` and `tensor[...] = ...`. Out: the same with tensors in the place
of arrays, or None. Invariant: what torch itself refuses is left to Python, which raises.
"""

from __future__ import annotations

import functools
import operator

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.numpy.arrays import ArrayValue, NumpyScalar
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue

#: dtypes of arrays that mean as indices of a tensor what a tensor of that dtype means
_INDICES = frozenset({torch.bool, torch.int8, torch.int16, torch.int32, torch.int64})


def by_arrays(tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """`tensor[array]` and `tensor[array] = value`."""
    target, key, *given = args
    if not isinstance(target, TensorValue):
        return None
    for value in given:
        if isinstance(value, NumpyScalar) and not _is_assigned(value.cls):
            raise Break("FB0015", f"{value.cls.__name__}, which torch assigns to no tensor")
    indices = _as_tensors(tx, key)
    if indices is None:
        return None
    if name == "getitem":
        return tx.binary("getitem", target, indices)
    return graph_call(tx, "call_function", operator.setitem, [target, indices, *given], {})


def _as_tensors(tx: Tracer, key: Value) -> Value | None:
    if isinstance(key, TupleValue):
        parts = [_as_tensors(tx, part) for part in key.parts()]
        if not any(parts):
            return None
        return TupleValue([made or part for made, part in zip(parts, key.parts(), strict=True)])
    if not isinstance(key, ArrayValue) or key.scalar or not key.shape():
        return None
    index = key.tensor(tx)
    return index if index.fake.dtype in _INDICES else None


@functools.cache
def _is_assigned(kind: type) -> bool:
    """Whether torch assigns a scalar of this class, as it does some of NumPy's."""
    try:
        torch.zeros(1, dtype=torch.complex128)[0] = kind(0)
    except TypeError:
        return False
    return True
