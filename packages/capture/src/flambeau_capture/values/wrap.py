"""Wrappers of constants, tensors, functions, methods, partials and enum members.

In: objects of those types. Out: their values. Invariant: importing this module fills the registry;
`wrap_any` is the one way from an object of the program to a value.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import compiled, disabled
from flambeau_capture.breaks import Break
from flambeau_capture.lookahead import can_look_ahead
from flambeau_capture.source import (
    Attr,
    ClosureCell,
    Free,
    Global,
    GlobalOf,
    Held,
    InstanceAttr,
    Item,
    ModuleEntry,
    Source,
)
from flambeau_capture.values import containers, nnmodules, objects  # noqa: F401 - registrations
from flambeau_capture.values.attributes import class_attribute, find_in_class
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.callables import BuiltinValue, known_callable
from flambeau_capture.values.cells import CellValue, is_empty
from flambeau_capture.values.classes import ClassValue
from flambeau_capture.values.constant import LITERALS, Constant
from flambeau_capture.values.dicts import DictValue
from flambeau_capture.values.functions import FunctionValue
from flambeau_capture.values.lists import ListValue
from flambeau_capture.values.methods import MethodValue
from flambeau_capture.values.opaque import FrozenValue, OpaqueValue
from flambeau_capture.values.registry import wrap_object, wraps_if, wraps_type
from flambeau_capture.values.sets import SetValue
from flambeau_capture.values.slices import SliceValue
from flambeau_capture.values.subclasses import existing_subclass
from flambeau_capture.values.symbols import NUMBERS, symbol_value
from flambeau_capture.values.tensor import TensorValue
from flambeau_capture.values.trust import trusted_callable
from flambeau_capture.values.tuples import TupleValue

__all__ = ["wrap_new", "wrap_object"]

_FROZEN: tuple[type, ...] = (
    torch.finfo,
    torch.iinfo,
    re.Pattern,
    re.Match,
    inspect.Signature,
    inspect.Parameter,
    types.CodeType,
    compat.SDP_BACKEND,
)


@wraps_type(*LITERALS)
def wrap_literal(tx: Tracer, obj: Any, source: Source) -> Value:
    if type(obj) in (int, float) and tx.varies(source, obj):
        made = tx.shapes.number(obj, source)
        if isinstance(made, NUMBERS):
            return symbol_value(tx, made)

    def commit() -> None:
        if obj is None:
            tx.guard(source, "NONE_MATCH")
        elif isinstance(obj, bool):
            tx.guard(source, "BOOL_MATCH", obj)
        else:
            tx.guard(source, "CONSTANT_MATCH", obj)

    _assume_there(tx, source)
    return Constant(obj, source, commit)


def _assume_there(tx: Tracer, source: Source) -> None:
    """A value that is only passed along is not looked at, but it has to be where it was: reading it
    would raise otherwise, before what the program does first and past its handlers."""
    in_globals = isinstance(source, Item) and isinstance(source.base, Held)
    if in_globals or isinstance(source, _MAY_END):
        tx.guard(source, "EXISTS")


_MAY_END = (Attr, ClosureCell, Free, Global, GlobalOf, InstanceAttr, ModuleEntry)


@wraps_if(lambda obj: isinstance(obj, enum.Enum), 5)
def wrap_enum(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    known: Value | None = tx.heap.find(obj)
    if known is None:
        known = EnumMember(obj, Held(obj, str(obj)))
        tx.heap.know(obj, known)
    return known


class EnumMember(FrozenValue):
    """A member of an enum; one that is also a string or a number behaves as such."""

    def length(self, tx: Tracer) -> int:
        return len(self.real)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found = find_in_class(type(self.real), name)
        if found is not None and isinstance(found[1], types.FunctionType | property):
            if not trusted_callable(found[0]):
                return class_attribute(tx, self, type(self.real), name)
        return super().get_attr(tx, name)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = find_in_class(type(self.real), "__call__")
        if found is None or not isinstance(found[1], types.FunctionType):
            return super().call(tx, args, kwargs)
        return tx.call(class_attribute(tx, self, type(self.real), "__call__"), args, kwargs)

    def graph_argument(self) -> Any:
        if isinstance(self.real, str | int | float):
            plain: Any = self.real
            return plain.value
        raise NotConcrete(self.describe())

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.real)


@wraps_if(lambda obj: isinstance(obj, torch.Tensor), 10)
def wrap_tensor(tx: Tracer, obj: torch.Tensor, source: Source) -> Value:
    known: Value | None = tx.heap.find(obj)
    if known is not None:
        if known.source is not None and known.source != source:
            tx.guard_alias(source, known.source)
        return known
    kind = type(obj)
    if not compat.has_own_dispatch(kind) and compat.lacks_fake_form(obj):
        tx.guard(source, "TYPE_MATCH", kind)
        tx.guard(source, "CALL", compat.lacks_fake_form, "has no sizes and strides of its own")
        return OpaqueTensor(obj, source)
    if kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        tx.guard(source, "TYPE_MATCH", kind)
        if compat.has_own_dispatch(kind) or torch.nn.parameter.is_lazy(obj):
            return OpaqueTensor(obj, source)
        if not compat.ignores_torch_function(kind):
            return existing_subclass(tx, obj, source)
    made = TensorValue(
        source=source,
        enter=lambda: _enter(tx, obj, source),
        python_class=type(obj),
        real=obj,
    )
    _assume_there(tx, source)
    tx.heap.know(obj, made)
    return made


def _enter(tx: Tracer, obj: torch.Tensor, source: Source) -> Any:
    dims = {} if isinstance(source, ModuleEntry) else tx.open_dims(source, obj)
    if dims:
        fake, sizes, strides = tx.shapes.tensor(obj, source, dims)
        tx.guard_tensor(source, obj, sizes, strides)
        return tx.graph.outermost.add_input(obj, source, fake)
    tx.guard_tensor(source, obj)
    if isinstance(source, ModuleEntry) and not _is_reassigned(tx, obj, source):
        tx.guard(source, "ID_MATCH", obj)
        return tx.graph.outermost.add_attribute(obj, source.name())
    return tx.graph.outermost.add_input(obj, source)


def _is_reassigned(tx: Tracer, obj: torch.Tensor, source: ModuleEntry) -> bool:
    """Whether the program replaces a parameter or a buffer by another from call to call."""
    return tx.replaced(source, obj)


class OpaqueTensor(OpaqueValue):
    """A tensor of a subclass: whatever is done with it happens in Python."""


@wraps_type(types.FunctionType)
def wrap_function(tx: Tracer, obj: types.FunctionType, source: Source) -> Value:
    pinned = not _made_per_call(source)
    if pinned:
        tx.guard(source, "FUNCTION_MATCH", obj)
        if not trusted_callable(obj):
            tx.guard(Attr(Held(obj, obj.__qualname__), "__code__"), "ID_MATCH", obj.__code__)
    else:
        tx.guard(Attr(source, "__code__"), "ID_MATCH", obj.__code__)
    known: Value | None = tx.heap.find(obj)
    if known is not None:
        if not pinned and known.source is not None:
            tx.guard_alias(source, known.source)
        return known
    made = function_value(tx, obj, source, pinned)
    tx.heap.know(obj, made)
    return made


def function_value(
    tx: Tracer, obj: types.FunctionType, source: Source, pinned: bool
) -> FunctionValue:
    return FunctionValue(
        obj.__code__,
        tx.scope_of(obj.__globals__),
        name=obj.__name__,
        qualname=obj.__qualname__,
        real=obj,
        source=Held(obj, obj.__qualname__) if pinned else source,
        pinned=pinned,
        tx=tx,
    )


def _made_per_call(source: Source) -> bool:
    """Functions among a frame's arguments or closures are often made anew for each call."""
    return source.is_local()


@wraps_type(types.MethodType)
def wrap_method(tx: Tracer, obj: types.MethodType, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", types.MethodType)
    receiver = tx.wrap(obj.__self__, Attr(source, "__self__"))
    function = tx.wrap(obj.__func__, Attr(source, "__func__"))
    return MethodValue(receiver, function, source)


@wraps_type(types.CellType)
def wrap_cell(tx: Tracer, obj: Any, source: Source) -> Value:
    known: Value | None = tx.heap.find(obj)
    if known is not None:
        place = known.place()
        assert place is not None
        tx.guard_alias(place, source)
        return known
    tx.guard(source, "TYPE_MATCH", types.CellType)
    try:
        pending = (obj.cell_contents, Attr(source, "cell_contents"))
    except ValueError:
        tx.guard(source, "CALL", is_empty, "is empty")
        made = CellValue(real=obj, source=source, tx=tx)
    else:
        made = CellValue(real=obj, source=source, pending=pending, tx=tx)
    tx.heap.know(obj, made)
    return made


class PartialValue(Value):
    """functools.partial."""

    built_once = True

    def __init__(
        self, fn: Value, args: list[Value], kwargs: dict[str, Value], source: Source | None = None
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.source = source

    @property
    def cls(self) -> type:
        return functools.partial

    def describe(self) -> str:
        return f"partial({self.fn.describe()})"

    def as_python(self) -> Any:
        return functools.partial(
            self.fn.as_python(),
            *(arg.as_python() for arg in self.args),
            **{key: arg.as_python() for key, arg in self.kwargs.items()},
        )

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "func":
            return self.fn
        if name == "args":
            return TupleValue(self.args)
        if name == "keywords":
            return DictValue([(Constant(k), v) for k, v in self.kwargs.items()], tx=tx)
        if not hasattr(functools.partial, name):
            tx.raise_error(AttributeError, f"'functools.partial' object has no attribute '{name}'")
        self.unknown(f"attribute {name!r}")

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs]:
        return self.fn, [*self.args, *args], {**self.kwargs, **kwargs}

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return tx.call(self.fn, [*self.args, *args], {**self.kwargs, **kwargs})

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
        else:
            writer.call(
                _make_partial,
                [
                    self.fn,
                    TupleValue(self.args),
                    DictValue([(Constant(k), v) for k, v in self.kwargs.items()]),
                ],
            )


def _make_partial(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return functools.partial(fn, *args, **kwargs)


@wraps_type(functools.partial)
def wrap_partial(tx: Tracer, obj: functools.partial[Any], source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", functools.partial)
    args = tx.wrap(obj.args, Attr(source, "args"))
    keywords = tx.wrap(obj.keywords, Attr(source, "keywords"))
    assert isinstance(args, TupleValue) and isinstance(keywords, DictValue)
    named = {key.as_python(): value for key, value in keywords.entries()}
    return PartialValue(tx.wrap(obj.func, Attr(source, "func")), args.parts(), named, source)


@wraps_if(lambda obj: isinstance(obj, _FROZEN), 50)
def wrap_frozen(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return FrozenValue(obj, Held(obj, type(obj).__name__))


_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    functools._lru_cache_wrapper,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    type(torch.ops.aten),
)


@wraps_if(lambda obj: isinstance(obj, _BUILTIN_CALLABLES), 70)
def wrap_builtin(tx: Tracer, obj: Any, source: Source) -> Value:
    owner = getattr(obj, "__self__", None)
    if (
        isinstance(obj, types.BuiltinFunctionType | types.MethodWrapperType)
        and owner is not None
        and not isinstance(owner, types.ModuleType | type | types.GetSetDescriptorType)
        and not trusted_callable(obj)
        and not known_callable(obj)
    ):
        tx.guard(source, "TYPE_MATCH", type(obj))
        receiver = tx.wrap(owner, Attr(source, "__self__"))
        return tx.get_attr(receiver, obj.__name__)
    tx.guard(source, "FUNCTION_MATCH", obj)
    return BuiltinValue(obj, Held(obj, getattr(obj, "__name__", type(obj).__name__)))


@wraps_type(compiled)
def wrap_compiled(tx: Tracer, obj: Any, source: Source) -> Value:
    """A compiled callable inside captured code is the function it was made from."""
    tx.guard(source, "ID_MATCH", obj)
    return tx.wrap(obj.fn, Held(obj.fn, "compiled function"))


@wraps_type(disabled)
def wrap_disabled(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return DisabledValue(obj, source)


class DisabledValue(OpaqueValue):
    """A function that is not to be looked into."""

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise Break("FB0006", f"call of disabled {getattr(self.real, '__name__', 'function')}")


_TYPING = (types.GenericAlias, types.UnionType)


@wraps_if(lambda obj: isinstance(obj, _TYPING) or type(obj).__module__ == "typing", 80)
def wrap_typing(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return TypingValue(obj, Held(obj, str(obj)))


class TypingValue(FrozenValue):
    """What typing makes: `List[int]` is evaluated."""

    def get_item(self, tx: Tracer, key: Value) -> Value:
        try:
            return tx.wrap_new(self.real[key.as_python()])
        except NotConcrete as error:
            raise Break("FB0009", f"{self.real}[{error}]") from None


@wraps_if(lambda obj: isinstance(obj, property | classmethod | staticmethod), 90)
def wrap_descriptor(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return OpaqueValue(obj, Held(obj, type(obj).__name__))


@wraps_if(lambda obj: hasattr(type(obj), "__next__") and not type(obj).__flags__ & (1 << 9), 100)
def wrap_iterator(tx: Tracer, obj: Any, source: Source) -> Value:
    from flambeau_capture.values.foreign_iterators import ForeignIterator
    from flambeau_capture.values.live import LiveIterator

    known: Value | None = tx.heap.find(obj)
    if known is not None:
        if known.source is not None and known.source != source:
            tx.guard_alias(source, known.source)
        return known
    tx.guard(source, "TYPE_MATCH", type(obj))
    made = LiveIterator(obj, source) if can_look_ahead(obj) else ForeignIterator(obj, source)
    tx.heap.know(obj, made)
    return made


def wrap_new(tx: Tracer, obj: Any) -> Value:
    """The value of an object that evaluation at capture time has made or found.

    Containers are new objects of the program; everything else stands for itself.
    """
    kind = type(obj)
    if kind in LITERALS:
        return Constant(obj)
    if kind in NUMBERS:
        return symbol_value(tx, obj)
    if kind is list:
        return ListValue([wrap_new(tx, item) for item in obj])
    if isinstance(obj, tuple) and containers.is_plain_tuple(kind):
        return TupleValue([wrap_new(tx, item) for item in obj], kind)
    if kind is dict:
        entries = [(wrap_new(tx, key), wrap_new(tx, value)) for key, value in obj.items()]
        return DictValue(entries, tx=tx)
    if kind in (set, frozenset):
        return SetValue([wrap_new(tx, item) for item in obj], kind, tx=tx)
    if kind is slice:
        bounds = [wrap_new(tx, bound) for bound in (obj.start, obj.stop, obj.step)]
        return SliceValue(bounds[0], bounds[1], bounds[2])
    if isinstance(obj, type):
        known: Value | None = tx.heap.find(obj)
        if known is None:
            known = ClassValue(obj)
            tx.heap.know(obj, known)
        return known
    return tx.wrap(obj, Held(obj, kind.__name__))


def concrete(value: Value) -> Any:
    """The Python object of a value, or NotImplemented."""
    try:
        return value.as_python()
    except NotConcrete:
        return NotImplemented
