"""Objects of NumPy's that the program has, as values.

In: an object of NumPy's and its source. Out: its value. Invariant: what NumPy's functions are in
torch is loaded at the first such object: its program has imported NumPy.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.source import Called, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.numpy.arrays import NumpyScalar, open_scalar, shared_tensor
from flambeau_capture.values.objects.opaque import FrozenValue, OpaqueValue
from flambeau_capture.values.registry import tracked, wraps_if
from flambeau_capture.values.tensors.tensor import TensorValue


def rules() -> Any:
    """What NumPy's functions are in torch. A program that has an array has imported NumPy."""
    from flambeau_capture.values.numpy import functions

    return functions


class NumpyFunction(OpaqueValue):
    """A function of NumPy's, or one of its universal functions."""

    def describe(self) -> str:
        return f"numpy.{getattr(self.real, '__name__', type(self.real).__name__)}"

    def as_python(self) -> Any:
        return self.real

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__name__":
            return tx.wrap_new(self.real.__name__)
        return BoundMethod(self, name)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found: Value = rules().call(tx, self.real, args, kwargs)
        return found


@tracked
def wrap_array(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    try:
        tensor = shared_tensor(obj)
    except (LookupError, TypeError, ValueError):
        return OpaqueValue(obj, source)
    inner = Called(source, shared_tensor)

    def enter() -> Any:
        tx.guard_tensor(inner, tensor)
        return tx.graph.outermost.add_input(tensor, inner)

    made: Value = rules().Array(TensorValue(source=inner, enter=enter), source=source)
    return made


def _is_numpy(obj: Any) -> bool:
    kind = type(obj)
    if kind is types.BuiltinFunctionType:
        return bool(obj.__module__ == "numpy")
    return kind.__module__.partition(".")[0] == "numpy" and not isinstance(obj, type)


@wraps_if(_is_numpy, 8)
def wrap_numpy(tx: Tracer, obj: Any, source: Source) -> Value:
    np = rules().np
    if isinstance(obj, np.generic):
        tx.guard(source, "TYPE_MATCH", type(obj))
        return open_scalar(tx, obj, source) or NumpyScalar(
            obj, source, lambda: tx.guard_equal(source, obj)
        )
    if type(obj) is np.ndarray:
        return wrap_array(tx, obj, source)
    if isinstance(obj, np.dtype):
        tx.guard(source, "ID_MATCH", obj)
        return FrozenValue(obj, ConstantSource(obj, "dtype"))
    tx.guard(source, "ID_MATCH", obj)
    if callable(obj):
        return NumpyFunction(obj, ConstantSource(obj, getattr(obj, "__name__", "function")))
    return tx.heap.value_of(obj, lambda: OpaqueValue(obj, source))
