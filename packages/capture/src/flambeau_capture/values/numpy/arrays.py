"""NumPy arrays and scalars as values.

In: arrays of the program, arrays made from tensors, arrays of known content. Out: `ArrayValue`,
`NumpyScalar`. Invariant: an array shares its memory with the tensor that stands for it in the
graph; an array of known content is copied into the graph, or built anew, before anything may
change it. NumPy itself is imported only for programs that use it.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.source import Called, Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import tracked
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue


def rules() -> Any:
    """What NumPy's functions are in torch. A program that has an array has imported NumPy."""
    from flambeau_capture.values.numpy import functions

    return functions


class ArrayValue(Value):
    """An array in the graph, or `known` until it is used there; `scalar`: a scalar of NumPy's."""

    def __init__(
        self,
        tensor: TensorValue | None = None,
        *,
        known: Any = None,
        source: Source | None = None,
        scalar: bool = False,
    ) -> None:
        self._tensor = tensor
        self.known = known
        self.source = source
        self.scalar = scalar

    @property
    def cls(self) -> type:
        found: type = type(rules().stand_in(self)) if self.scalar else rules().np.ndarray
        return found

    def describe(self) -> str:
        return f"ArrayValue({self.shape()})"

    def shape(self) -> tuple[int, ...]:
        return tuple(self.known.shape if self.known is not None else self._shape())

    def _shape(self) -> tuple[Any, ...]:
        assert self._tensor is not None
        return tuple(self._tensor.fake.shape)

    def tensor(self, tx: Tracer) -> TensorValue:
        """What stands for the array in the graph."""
        if self._tensor is None:
            held = torch.from_numpy(self.known.copy())
            node = tx.graph.outermost.add_attribute(held, "array")
            made = graph_call(tx, "call_method", "clone", [TensorValue(node)], {})
            assert isinstance(made, TensorValue)
            self._tensor, self.known = made, None
            tx.heap.changed()
        return self._tensor

    def as_python(self) -> Any:
        raise NotConcrete(self.describe())

    def truth(self, tx: Tracer) -> bool:
        if self.known is not None and self.known.size == 1:
            return bool(self.known)
        raise Break("FB0001", f"truth of {self.describe()}")

    def length(self, tx: Tracer) -> int:
        if not self.shape():
            tx.raise_error(TypeError, "len() of unsized object")
        return int(self.shape()[0])

    def iterate(self, tx: Tracer) -> IteratorValue:
        items = [self.get_item(tx, Constant(place)) for place in range(self.length(tx))]
        return SequenceIterator(TupleValue(items))

    def get_item(self, tx: Tracer, key: Value) -> Value:
        found: Value = rules().get_item(tx, self, key)
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        rules().set_item(tx, self, key, value)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found: Value = rules().attribute(tx, self, name)
        return found

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        found: Value = rules().method(tx, self, name, args, kwargs)
        return found

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            if self.known is not None:
                writer.call(_Copy(self.known), [])
            else:
                writer.load(self._tensor)
                writer.call_top(_scalar if self.scalar else _array)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy()


def _scalar(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy()[()]


class _Copy:
    """Makes an array of known content."""

    def __init__(self, known: Any) -> None:
        self._known = known.copy()

    def __call__(self) -> Any:
        return self._known.copy()


def shared_tensor(array: Any) -> torch.Tensor:
    """A tensor over an array's memory. Raises where torch has no such tensor."""
    if type(array).__name__ != "ndarray" or not array.flags.writeable:
        raise LookupError("no plain array that can be written to")
    return torch.from_numpy(array)


class NumpyScalar(Constant):
    """One of NumPy's scalars, whose number is known."""

    def graph_argument(self) -> Any:
        """The number that torch takes it for: a boolean of NumPy's is a float to torch."""
        number = self.value.item()
        return float(number) if isinstance(number, bool) else number

    def as_number(self) -> Constant:
        """The Python number that it holds."""
        return Constant(self.value.item())

    def sample(self) -> Any:
        """One of its class."""
        return self.value


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

    return ArrayValue(TensorValue(source=inner, enter=enter), source=source)
