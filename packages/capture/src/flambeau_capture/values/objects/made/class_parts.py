"""Parts of classes that the frame makes, and the models by which Python treats them.

In: values that a class statement leaves in a namespace. Out: `MadePart`, a property and the like;
`model_of`, an object that Python treats as it would the value's own. Invariant: whatever is read of
a model is the value that it is for; no model reaches the program.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue, PartialValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.objects.attributes import find_in_class, layout_of
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.descriptors import SHOWN_PARTS
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.stand_ins import stand_in
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

#: what is found through an instance as it is: it does not bind
_UNBOUND = (TensorValue, ListValue, DictValue, SetValue, TupleValue, SymbolValue, PartialValue,
            MethodValue, BoundMethod)  # fmt: skip


_SET_NAME: Any = functools.cached_property.__set_name__


_OF_FIELDS = frozenset(dataclasses.Field.__slots__) - {"metadata"}


class MadePart(Value):
    """What a call makes for a class to have: a property, a static method, a field."""

    described = "{0.fn.__name__} made here"
    cls: type

    def __init__(self, tx: Tracer, fn: Any, args: Sequence[Value], kwargs: Kwargs) -> None:
        self.fn, self.args, self.kwargs = fn, list(args), dict(kwargs)
        plain = [model_of(tx, arg, "an argument") for arg in args]
        named = {name: model_of(tx, arg, name) for name, arg in kwargs.items()}
        try:
            self.model = fn(*plain, **named)
        except Exception as error:
            for arg, model in zip((*args, *kwargs.values()), (*plain, *named.values())):
                if tx.heap.model(arg) is model:  # whose words are not the value's own
                    raise Break("FB0009", f"{fn.__name__} refuses {arg.describe()}") from None
            tx.raise_as_python(error)
        self.cls = type(self.model)
        tx.heap.set_model(self.model, self)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if self.fn is property and name in ("setter", "getter", "deleter"):
            return BoundMethod(self, name)
        if name in SHOWN_PARTS.get(self.cls, ()):
            return tx.wrap_new(getattr(self.model, name))
        if isinstance(self.model, dataclasses.Field) and name in _OF_FIELDS:
            return tx.wrap_new(getattr(self.model, name))
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        place = {"getter": 0, "setter": 1, "deleter": 2}.get(name)
        if self.fn is not property or place is None or len(args) != 1 or kwargs or self.kwargs:
            self.unknown(f"method {name!r}")
        parts = [*self.args, *[Constant(None)] * (3 - len(self.args))]
        parts[place] = args[0]
        return MadePart(tx, property, parts, {})

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if self.fn is staticmethod:
            return tx.call(self.args[0], args, kwargs)
        return super().call(tx, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(self.fn, self.args, self.kwargs)
        named = getattr(self.model, "attrname", None)
        if named is not None:  # by its class, which may be gone
            writer.do_with_top(_SET_NAME, [Constant(None), Constant(named)])


def model_of(tx: Tracer, value: Value, name: str) -> Any:
    """An object that Python treats as it would the value's own where a class has it."""
    if isinstance(value, Constant | FrozenValue):
        return value.as_python()
    if isinstance(value, ClassValue):
        return value.python_class
    if isinstance(value, BuiltinValue):
        return value.fn
    if isinstance(value, MadePart):
        return value.model
    if isinstance(value, FunctionValue) and value.real is not None and not value.attributes:
        return value.real
    if isinstance(value, TupleValue) and isinstance(value.source, ConstantSource):
        return value.source.object
    known = tx.heap.model(value)
    if known is not None:
        return known
    model: Any = _new_model(tx, value, name)
    tx.heap.set_model(model, value)
    return model


def _new_model(tx: Tracer, value: Value, name: str) -> Any:
    if isinstance(value, FunctionValue) and value.made_by is None:
        cells = tuple(_model_of_cell(tx, value, cell) for cell in value.closure())
        model = types.FunctionType(value.code, value.scope.namespace, value.name, None, cells)
        model.__qualname__ = value.qualname
        for attribute, part in value.attributes.items():
            setattr(model, attribute, model_of(tx, part, attribute))
        return model
    if isinstance(value, DictValue) and value.cls is dict:
        return {key.as_python(): model_of(tx, part, name) for key, part in value.entries()}
    if isinstance(value, ListValue) and value.cls is list:
        return [model_of(tx, part, name) for part in value.parts()]
    if isinstance(value, SetValue) and value.cls is set:
        return set()
    if isinstance(value, TupleValue) and value.cls is tuple:
        return tuple(model_of(tx, part, name) for part in value.parts())
    if isinstance(value, ObjectValue):
        if value.real is not None:
            return value.real
        if layout_of(value.cls) is object:
            return object.__new__(value.cls)
    if isinstance(value, _UNBOUND):
        return _placeholder(value.cls)
    raise Break("FB0020", f"{name!r} is {value.describe()}")


def _model_of_cell(tx: Tracer, owner: FunctionValue, cell: CellValue) -> types.CellType:
    """Empty, but for what gives annotations, which the library calls."""
    content = cell.content
    if owner.name != "__annotate__" or content is None:
        return types.CellType()
    if isinstance(content, DictValue):  # of the names of a class: not of its functions
        made = FunctionValue | CellValue
        entries = [(k, v) for k, v in content.entries() if not isinstance(v, made)]
        return types.CellType({k.as_python(): model_of(tx, v, "a name") for k, v in entries})
    return types.CellType(model_of(tx, content, "what an annotation names"))


def _placeholder(kind: type) -> Any:
    """An object that no part of Python looks into, but for whether it is called and is hashed."""
    given: dict[str, Any] = {"__module__": kind.__module__}
    found = find_in_class(kind, "__hash__")
    if found is not None and found[1] is None:
        given["__hash__"] = None
    if find_in_class(kind, "__call__") is not None:
        given["__call__"] = None
    return stand_in(kind, given)


def made_part(fn: Any) -> Callable[[Tracer, Args, Kwargs], Value]:
    """A handler of the calls that make parts of classes."""
    return lambda tx, args, kwargs: MadePart(tx, fn, args, kwargs)


PARTS = (
    property, staticmethod, classmethod, functools.cached_property, functools.partialmethod,
    dataclasses.field,
)  # fmt: skip
