"""Python functions and their parts: defaults, closure, annotations, `__dict__`.

In: functions of the program and those it makes while it is interpreted. Out: `FunctionValue`.
Invariant: a function that is made anew for each call is guarded by its code and read through the
path that led to it; any other is guarded by identity and read through the object itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau_capture._native import compiled, disabled
from flambeau_capture.breaks import Break
from flambeau_capture.source import (
    Attr,
    ClosureCell,
    ConstantSource,
    Default,
    InstanceAttr,
    Item,
    KwDefault,
    Source,
)
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    MadeBy,
    NotConcrete,
    Tracer,
    Unreconstructible,
    Value,
)
from flambeau_capture.values.constant import Constant, evaluate, is_none, nameless
from flambeau_capture.values.containers.dicts import DictValue, MappingValue, named_dict
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.functions.variables import CellValue, GlobalsScope, existing_cell
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import (
    itself,
    tracked,
    trusted_callable,
    wrap_known,
    wraps_type,
)

_METHODS = (types.WrapperDescriptorType, types.MethodDescriptorType)


@dataclass(eq=False, repr=False)
class FunctionValue(Value):
    """A Python function. `real` is None for one that the program made under capture."""

    described = "FunctionValue({0.name})"
    cls = types.FunctionType
    in_cells = True

    code: types.CodeType
    scope: GlobalsScope
    name: str
    qualname: str
    tx: Any
    real: Any = None  # a function of Python's
    source: Source | None = None
    pinned: bool = False
    made_by: MadeBy | None = None  # what of the library it stands for
    annotations: Value | None = None  # names and values in turn, as code makes them
    annotate: Value | None = None  # 3.14 on: the function that makes them
    attributes: dict[str, Value] = field(default_factory=dict)
    _defaults: list[Value] | None = None
    _kwdefaults: dict[str, Value] | None = None
    _closure: list[CellValue] = field(default_factory=list)
    _shown_kwdefaults: Value | None = None  # what the program has, and may write to
    _shown_dict: Value | None = None
    _shown_closure: Value | None = None

    def as_python(self) -> Any:
        if self.real is None or self.attributes:
            raise NotConcrete(self.describe())
        return self.real

    def base(self) -> Source:
        """What parts of an existing function are read through."""
        assert self.real is not None and self.source is not None
        return ConstantSource(self.real, self.name) if self.pinned else self.source

    def guard_part(self, name: str) -> None:
        """Guard how many items, or which keys, a part of an existing function has."""
        if self.real is None or trusted_callable(self.real):
            return
        part, source = getattr(self.real, name), Attr(self.base(), name)
        if part is None:
            self.tx.guard(source, "NONE_MATCH")
        elif isinstance(part, tuple):
            self.tx.guard(source, "TUPLE_LENGTH", len(part))
        else:
            self.tx.guard(source, "DICT_KEYS", tuple(part), True)

    def defaults(self) -> list[Value]:
        given = self.attributes.get("__defaults__")
        if given is not None:
            return [] if is_none(given) else given.parts()  # type: ignore[attr-defined,no-any-return]
        if self._defaults is None:
            reals = () if self.real is None else (self.real.__defaults__ or ())
            self.guard_part("__defaults__")
            self._defaults = [
                self.tx.wrap(item, Default(self.base(), index)) for index, item in enumerate(reals)
            ]
        return list(self._defaults)

    def kwdefaults(self) -> dict[str, Value]:
        given = self.attributes.get("__kwdefaults__") or self._shown_kwdefaults
        if given is not None:
            pairs = [] if is_none(given) else given.entries()  # type: ignore[attr-defined]
            return {key.as_python(): value for key, value in pairs}
        if self._kwdefaults is None:
            reals = {} if self.real is None else (self.real.__kwdefaults__ or {})
            self.guard_part("__kwdefaults__")
            self._kwdefaults = {
                name: self.tx.wrap(item, KwDefault(self.base(), name))
                for name, item in reals.items()
            }
        return dict(self._kwdefaults)

    def closure(self) -> list[CellValue]:
        if not self._closure and self.real is not None and self.real.__closure__:
            cells = zip(self.code.co_freevars, self.real.__closure__)
            self._closure = [
                self._existing_cell(index, name, cell) for index, (name, cell) in enumerate(cells)
            ]
        return self._closure

    def _existing_cell(self, index: int, name: str, cell: Any) -> CellValue:
        base = self.base()
        source = (
            ConstantSource(cell, f"cell {name}")
            if self.pinned
            else Item(Attr(base, "__closure__"), index, "tuple")
        )
        return existing_cell(self.tx, cell, source, ClosureCell(base, index), name)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        simple = {"__name__": self.name, "__qualname__": self.qualname, "__code__": self.code}
        if name in simple:
            own = self.real is not None and getattr(self.real, name) == simple[name]
            if own and name != "__code__" and not trusted_callable(self.real):
                return tx.wrap(simple[name], Attr(self.base(), name))
            return tx.wrap_new(simple[name])
        if name == "__globals__":
            return self.scope.as_dict()
        handler = _PARTS.get(name)
        if handler is not None:
            return handler(self, tx)
        if self.real is not None:
            if not hasattr(self.real, name):
                tx.guard(self.base(), "NOT_HASATTR", name)
                self.lacks(tx, name)
            found = getattr(self.real, name)
            if isinstance(found, types.MethodWrapperType):
                return BoundMethod(self, name)
            step = InstanceAttr if name in vars(self.real) else Attr
            return tx.wrap(found, step(self.base(), name))
        if name in _OF_CODE:
            return _new_part(self, tx, name)
        owner = next((k for k in types.FunctionType.__mro__ if name in vars(k)), None)
        if owner is None:
            self.lacks(tx, name)
        if isinstance(vars(owner)[name], _METHODS):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self.real is not None and name.startswith("__") and name not in _WORDS:
            raise Break("FB0019", f"attribute {name!r} of a function is set")
        if name == "__code__":
            evaluate(tx, setattr, _like(self.code), name, _object_of(value))
            tx.heap.changed(self)
            self.code = value.as_python()
            return
        if isinstance(vars(types.FunctionType).get(name), _KEPT_IN_PLACE):
            like: Any = next((kind for kind in (dict, tuple) if issubclass(value.cls, kind)), None)
            evaluate(tx, setattr, lambda: None, name, like() if like else nameless(value))
            if name not in _SET and not isinstance(value, Constant):
                raise Break("FB0019", f"attribute {name!r} of a function is set")
        tx.heap.changed(self)
        if name in ("__annotations__", "__annotate__"):
            self.annotate = None
        if name in ("__name__", "__qualname__") and isinstance(value, Constant):
            setattr(self, name.strip("_"), value.value)
        self.attributes[name] = value

    def replay(self, writer: Any) -> None:
        for name, value in self.attributes.items():
            writer.do(setattr, [self, Constant(name), value])

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return tx.inline(self, args, kwargs)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__get__":
            return self if is_none(args[0]) else MethodValue(args[0], self)
        if name == "__call__":
            return tx.inline(self, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        if self.made_by is not None:
            self.made_by.write(self, writer)
            return
        attributes = {"__qualname__": Constant(self.qualname), **self.attributes}
        if self.annotations is not None and "__annotations__" not in attributes:
            attributes["__annotations__"] = _new_part(self, self.tx, "__annotations__")
        if self.annotate is not None and "__annotations__" in attributes:
            raise Unreconstructible(self, "a function whose annotations were looked at")
        if self.annotate is not None:
            attributes.setdefault("__annotate__", self.annotate)
        if self.kwdefaults() and "__kwdefaults__" not in attributes:
            attributes["__kwdefaults__"] = named_dict(self.kwdefaults())
        with writer.building(self):
            plain = map(Constant, (self.code, self.scope.namespace, self.name))
            parts = [*plain, _tuple_or_none(self.defaults()), _tuple_or_none(self.closure())]
            writer.call(_build_function, [named_dict(attributes), *parts])


def _like(code: types.CodeType) -> types.FunctionType:
    """A function of this code, with cells of its own."""
    cells = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, {}, code.co_name, None, cells or None)


def _object_of(value: Value) -> Any:
    return value.as_python() if value.cls is types.CodeType else nameless(value)


def _build_function(attributes: dict[str, Any], *parts: Any) -> types.FunctionType:
    made = types.FunctionType(*parts)
    for key, value in attributes.items():
        setattr(made, key, value)
    return made


def _tuple_or_none(items: Sequence[Value]) -> Value:
    return TupleValue(items) if items else Constant(None)


def _defaults_part(fn: FunctionValue, tx: Tracer) -> Value:
    if fn.real is None or "__defaults__" in fn.attributes:
        found = fn.attributes["__defaults__"] = _tuple_or_none(fn.defaults())
        return found
    return tx.wrap(fn.real.__defaults__, Attr(fn.base(), "__defaults__"))


def _kwdefaults_part(fn: FunctionValue, tx: Tracer) -> Value:
    if fn._shown_kwdefaults is None and fn.real is not None:
        fn._shown_kwdefaults = tx.wrap(fn.real.__kwdefaults__, Attr(fn.base(), "__kwdefaults__"))
    elif fn._shown_kwdefaults is None:
        found = fn.kwdefaults()
        fn._shown_kwdefaults = named_dict(found, tx) if found else Constant(None)
        fn.attributes["__kwdefaults__"] = fn._shown_kwdefaults
    return fn._shown_kwdefaults


def _closure_part(fn: FunctionValue, tx: Tracer) -> Value:
    if fn._shown_closure is None:
        fn._shown_closure = _tuple_or_none(fn.closure())
    return fn._shown_closure


def _dict_part(fn: FunctionValue, tx: Tracer) -> Value:
    if fn._shown_dict is None:
        fn._shown_dict = FunctionDict(fn)
    return fn._shown_dict


#: attributes that are no entries of `__dict__`
_HIDDEN = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__",
           "__annotate__", "__type_params__", "__defaults__", "__kwdefaults__")  # fmt: skip
#: what a function made by code has of that code and of what it was made with
_OF_CODE = frozenset(
    {"__doc__", "__module__", "__annotations__", "__annotate__", "__type_params__"}
).intersection(vars(types.FunctionType))
#: what nothing but a look at the function shows
_WORDS = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})
#: what a function keeps elsewhere than in `__dict__`, and what of it may be any value of its class
_KEPT_IN_PLACE = (types.GetSetDescriptorType, types.MemberDescriptorType)
_SET = frozenset({"__doc__", "__module__", "__annotations__", "__defaults__", "__kwdefaults__"})
_PARTS: dict[str, Callable[[FunctionValue, Any], Value]] = {
    "__defaults__": _defaults_part,
    "__kwdefaults__": _kwdefaults_part,
    "__closure__": _closure_part,
    "__dict__": _dict_part,
    "__class__": lambda fn, tx: tx.wrap_new(types.FunctionType),
    "__get__": lambda fn, tx: BoundMethod(fn, "__get__"),
}


def _new_part(fn: FunctionValue, tx: Tracer, name: str) -> Value:
    if name == "__type_params__":  # to give it others ends the graph
        return tx.wrap_new(())
    if name == "__annotate__":
        return Constant(None) if fn.annotate is None else fn.annotate
    if name == "__annotations__" and fn.annotate is not None:
        fn.attributes[name] = tx.call(fn.annotate, [Constant(1)], {})  # the format of values
        return fn.attributes[name]
    if name == "__annotations__":
        flat = [] if fn.annotations is None else fn.annotations.parts()  # type: ignore[attr-defined]
        found = DictValue(list(zip(flat[::2], flat[1::2])), tx=tx)
        fn.attributes[name] = found
        return found
    if name == "__module__":
        return tx.wrap_new(fn.scope.namespace.get("__name__"))
    first = fn.code.co_consts[0] if fn.code.co_consts else None
    return tx.wrap_new(first if isinstance(first, str) else None)


class FunctionDict(MappingValue):
    """`__dict__` of a function: what is written to it is an attribute."""

    def __init__(self, fn: FunctionValue) -> None:
        self.fn = fn

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        return self.whole(tx).lookup(tx, key)

    def store(self, tx: Tracer, key: Value, value: Value) -> None:
        name = key.as_python()
        if not isinstance(name, str) or hasattr(types.FunctionType, name):
            raise Break("FB0019", f"__dict__[{name!r}] of a function is set")
        self.fn.set_attr(tx, name, value)

    def whole(self, tx: Tracer) -> DictValue:
        fn, known = self.fn, {}
        if fn.real is not None:
            fn.guard_part("__dict__")
            known = {
                name: tx.wrap(value, InstanceAttr(fn.base(), name))
                for name, value in fn.real.__dict__.items()
                if name not in fn.attributes
            }
        set_here = {name: v for name, v in fn.attributes.items() if name not in _HIDDEN}
        return named_dict({**known, **set_here}, tx)

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.fn)
        writer.load_attr("__dict__")


@wraps_type(types.FunctionType)
def wrap_function(tx: Tracer, obj: types.FunctionType, source: Source) -> Value:
    # one that may be made anew for each call, as arguments and closures often are, is not pinned
    here = isinstance(source, ConstantSource)
    pinned = not source.is_local() and (here or not tx.replaced(source, obj))
    if pinned:
        tx.guard(source, "FUNCTION_MATCH", obj)
        if not trusted_callable(obj):
            tx.guard(Attr(itself(obj, obj.__qualname__), "__code__"), "ID_MATCH", obj.__code__)
    else:
        tx.guard(Attr(source, "__code__"), "ID_MATCH", obj.__code__)
    known: Value | None = tx.heap.find(obj)
    if known is not None:
        if not pinned and known.source is not None:
            tx.guard_alias(source, known.source)
        return known
    path = itself(obj, obj.__qualname__) if pinned else source
    made = FunctionValue(
        obj.__code__, tx.scope_of(obj.__globals__), obj.__name__, obj.__qualname__, tx,
        obj, path, pinned,
    )  # fmt: skip
    tx.heap.know(obj, made)
    return made


@wraps_type(types.MethodType)
@tracked
def wrap_method(tx: Tracer, obj: types.MethodType, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", types.MethodType)
    receiver = tx.wrap(obj.__self__, Attr(source, "__self__"))
    function = tx.wrap(obj.__func__, Attr(source, "__func__"))
    return MethodValue(receiver, function, source)


@wraps_type(types.CellType)
def wrap_cell(tx: Tracer, obj: Any, source: Source) -> Value:
    if tx.heap.find(obj) is None:
        tx.guard(source, "TYPE_MATCH", types.CellType)
    return existing_cell(tx, obj, source, Attr(source, "cell_contents"))


@wraps_type(compiled)
def wrap_compiled(tx: Tracer, obj: Any, source: Source) -> Value:
    """A compiled callable inside captured code is the function it was made from."""
    tx.guard(source, "ID_MATCH", obj)
    return wrap_known(tx, obj.fn, "compiled function")


@wraps_type(disabled)
def wrap_disabled(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return DisabledValue(obj, source)


class DisabledValue(OpaqueValue):
    """A function that is not to be looked into."""

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise Break("FB0006", f"call of disabled {getattr(self.real, '__name__', 'function')}")
