"""NumPy arrays, scalars and functions as values.

In: objects of NumPy's, arrays made from tensors, arrays of known content. Out: `ArrayValue`,
`NumpyScalar`, and `ArrayNumber` for a scalar that varies from call to call. Invariant: an array
shares its memory with its tensor in the graph; one of known content is copied into the graph, or
built anew, before anything may change it. NumPy itself, imported only for programs that use it,
computes with scalars before the graph runs: reading the `value` of one that varies fixes it.
"""

from __future__ import annotations

import operator
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.graph.symbolic_shapes import LARGEST
from flambeau_capture.source import Called, ConstantSource, Source, SymbolExprSource
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.tensors.graph_calls import tensor_call
from flambeau_capture.values.tensors.symbolic_numbers import (
    BITS,
    BY_PYTHON,
    NUMBERS,
    SymbolValue,
    symbol_operator,
    symbol_value,
)
from flambeau_capture.values.tensors.tensor import TensorValue


@dataclass(eq=False, repr=False)
class ArrayValue(Value):
    """An array in the graph, or `known` until it is used there; `scalar`: a scalar of NumPy's.

    What NumPy itself has to answer is in `functions.Array`, the only kind that is made.
    """

    _tensor: TensorValue | None = None
    known: Any = None
    source: Source | None = None
    scalar: bool = False

    def describe(self) -> str:
        return f"ArrayValue({self.shape()})"

    def shape(self) -> tuple[int, ...]:
        if self.known is not None:
            return tuple(self.known.shape)
        assert self._tensor is not None
        return tuple(self._tensor.fake.shape)

    def tensor(self, tx: Tracer) -> TensorValue:
        """What stands for the array in the graph."""
        if self._tensor is None:
            held = torch.from_numpy(self.known.copy())
            node = tx.graph.outermost.add_attribute(held, "array")
            self._tensor = tensor_call(tx, "call_method", "clone", [TensorValue(node)])
            self.known = None
            tx.heap.changed()
        return self._tensor

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


_OPEN = frozenset({"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"})
_LONGEST = 12  # scalars that one is computed of
_COMPARED = frozenset({"==", "!=", "<", "<=", ">", ">="})
#: on these NumPy's operators of scalars are Python's of the numbers that they hold
_AS_IN_PYTHON = ("float64", "int64")
_OF_THE_CLASS = frozenset({"dtype", "shape", "ndim", "size", "itemsize", "nbytes"})
_IN_PYTHON = frozenset({"item", "tolist", "__float__", "__int__", "__index__"})


def _number_of(scalar: Any) -> int | float:
    found: int | float = scalar.item()
    return found


class ArrayNumber(NumpyScalar):
    """A scalar of class `kind`. `made_of`: how it is computed of the numbers of symbols."""

    described = "Symbol({0.kind.__name__})"
    is_open = True

    def __init__(self, kind: type, number: SymbolValue, made_of: Source, source: Source) -> None:
        Constant.__init__(self, None, source)
        self.kind = kind
        self.number = number
        self.made_of = made_of

    @property
    def value(self) -> Any:
        return self.kind(self.number.value)

    @property
    def cls(self) -> type:
        return self.kind

    @property
    def is_none(self) -> bool:
        return False

    def is_known_to_be(self, obj: Any) -> bool:
        return False

    def truth(self, tx: Tracer) -> bool:
        return self.number.truth(tx)

    def graph_argument(self) -> Any:
        return self.number.graph_argument()

    def as_number(self) -> Constant:
        return self.number

    def sample(self) -> Any:
        return self.kind(1)

    def reconstruct(self, writer: Any) -> None:
        writer.load_source(self.source)  # its value, as a constant, is not known

    def present(self, tx: Tracer) -> Any:
        """What it is now, without assuming it."""
        return self.kind(tx.shapes.present(self.number.number))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in _OF_THE_CLASS:
            return tx.wrap_new(getattr(self.kind(1), name))
        if name == "real":
            return self
        if name in _IN_PYTHON:
            return BoundMethod(self, name)
        return super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in _IN_PYTHON and not args and not kwargs:
            wanted = {"__float__": float, "__int__": int}.get(name, self.number.cls)
            if wanted is self.number.cls:
                return self.number
        return super().call_method(tx, name, args, kwargs)


def is_open_kind(kind: type) -> bool:
    """Whether scalars of a class may vary from call to call."""
    return kind.__module__ == "numpy" and kind.__name__ in _OPEN


def _numpy() -> Any:
    return sys.modules["numpy"]  # the program, which has a scalar, has imported it


def open_scalar(tx: Tracer, scalar: Any, source: Source) -> Value | None:
    """The value of a scalar that was another one before; None where it has to be known."""
    kind = type(scalar)
    if not is_open_kind(kind) or not tx.varies(source, _number_of(scalar)):
        return None
    inner = Called(source, _number_of)
    made = tx.shapes.number(_number_of(scalar), inner)
    if not isinstance(made, NUMBERS):
        return None
    number = symbol_value(tx, made)
    assert isinstance(number, SymbolValue)
    return ArrayNumber(kind, number, SymbolExprSource(kind, (inner,)), source)


def scalar_operator(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    """An operator on scalars of which one varies; None: on their values, then."""
    if symbol in _COMPARED:
        return _compared(tx, symbol, left, right)
    fn = BY_PYTHON.get(symbol) or BITS.get(symbol)
    return None if fn is None else scalar_call(tx, fn, [left, right], symbol)


def scalar_call(
    tx: Tracer, fn: Callable[..., Any], args: Args, symbol: str | None = None
) -> Value | None:
    """A function that NumPy computes of scalars before the graph runs; None: of their values."""
    known = [_known(tx, arg) for arg in args]
    if any(one is None for one in known):
        return None
    with _numpy().errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn(*(present for present, _ in known))  # type: ignore[misc]
        except Exception:
            return None  # the program raises it, where it is
    kind = type(result)
    source = SymbolExprSource(fn, tuple(origin for _, origin in known))  # type: ignore[misc]
    if not is_open_kind(kind) or source.count() > _LONGEST:
        return None
    numbers = [arg.as_number() if isinstance(arg, NumpyScalar) else arg for arg in args]
    number: Value | None = None
    if kind.__name__ in _AS_IN_PYTHON and symbol is not None and all(map(_in_python, args)):
        number = symbol_operator(tx, symbol, *numbers) if symbol not in ("/", "**") else None
    if number is None and isinstance(_number_of(result), float):
        made = tx.shapes.computed(SymbolExprSource(_number_of, (source,)), _number_of(result), None)
        number = symbol_value(tx, made) if isinstance(made, NUMBERS) else None
    if type(number) is Constant:
        return NumpyScalar(result)  # whatever varies has gone from it
    if not isinstance(number, SymbolValue) or number.cls is not type(_number_of(result)):
        return None
    return ArrayNumber(kind, number, source, source)


def _known(tx: Tracer, value: Value) -> tuple[Any, Source] | None:
    """What a scalar or a number of the program is now, and how it is computed."""
    if isinstance(value, ArrayNumber):
        return value.present(tx), value.made_of
    if isinstance(value, SymbolValue):
        origin = tx.shapes.origin(value.number)
        return None if origin is None else (tx.shapes.present(value.number), origin)
    if isinstance(value, NumpyScalar) or (type(value) is Constant and value.cls in (int, float)):
        return value.value, ConstantSource(value.value, repr(value.value))
    return None


def _in_python(value: Any) -> bool:
    """Whether NumPy computes with a number as Python does."""
    if isinstance(value, NumpyScalar):
        return value.cls.__name__ in _AS_IN_PYTHON
    return isinstance(value, SymbolValue) or value.cls is float or abs(value.value) <= LARGEST


def _compared(tx: Tracer, symbol: str, left: Value, right: Value) -> Value | None:
    if not all(_known(tx, value) is not None and _in_python(value) for value in (left, right)):
        return None
    numbers = [v.as_number() if isinstance(v, NumpyScalar) else v for v in (left, right)]
    found = symbol_operator(tx, symbol, *numbers)
    return None if found is None else NumpyScalar(_numpy().bool_(found.truth(tx)))


def in_python(fn: Any, args: Args) -> list[Value]:
    """Arguments of a function that takes numbers alone, and converts each."""
    numbers_only = fn in (int, float, operator.index) or (
        isinstance(fn, types.BuiltinFunctionType) and fn.__module__ == "math"
    )
    if not numbers_only:
        return [*args]
    return [arg.number if isinstance(arg, ArrayNumber) else arg for arg in args]
