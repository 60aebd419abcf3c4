"""Derived sources (attributes, items, parts of functions and tensors), and bytecode that loads.

In: the source of the first object. Out: the source of the second; `emit`: the instructions that
load it again. Invariant: where a step names the container, it is read without what a subclass of it
defines.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flambeau_capture.bytecode import spelling
from flambeau_capture.lookahead import look_ahead
from flambeau_capture.source.base import (
    Builtin,
    CallResultSource,
    ClosureSource,
    ConstantSource,
    Derived,
    FreeCell,
    Global,
    Local,
    Scope,
    Source,
    SymbolExprSource,
)

if TYPE_CHECKING:
    from flambeau_capture.bytecode.instruction import Instruction

ItemKind = Literal["list", "tuple", "dict", "any"]
ModuleTable = Literal["_parameters", "_buffers", "_modules"]


@dataclass(frozen=True)
class Attr(Derived):
    """`base.attribute`, with all that attribute access does (descriptors, `__getattr__`)."""

    attribute: str

    def name(self) -> str:
        return f"{self.base.name()}.{self.attribute}"

    def read(self, scope: Scope, value: Any) -> Any:
        return getattr(value, self.attribute)


@dataclass(frozen=True)
class InstanceAttr(Derived):
    """`base.__dict__[attribute]`: no descriptor runs when a guard reads it."""

    attribute: str

    def name(self) -> str:
        return f"{self.base.name()}.{self.attribute}"

    def read(self, scope: Scope, value: Any) -> Any:
        return _dict_item(instance_dict(value), self.attribute)


@dataclass(frozen=True)
class ModuleEntry(Derived):
    """A parameter, buffer or submodule of an `nn.Module`, read from the dict that holds it."""

    table: ModuleTable
    entry: str

    def name(self) -> str:
        if self.entry.isidentifier():
            return f"{self.base.name()}.{self.entry}"
        return f"{self.base.name()}.{self.table}[{self.entry!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return _dict_item(_dict_item(instance_dict(value), self.table), self.entry)


@dataclass(frozen=True)
class ClassEntry(Derived):
    """`vars(base)[entry]` of a class: what stands there, no descriptor called."""

    entry: str

    def name(self) -> str:
        return f"vars({self.base.name()})[{self.entry!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return vars(value)[self.entry] if isinstance(value, type) else _absent(self.entry)


@dataclass(frozen=True)
class ClassOf(Derived):
    """`type(base)`."""

    def name(self) -> str:
        return f"type({self.base.name()})"

    def read(self, scope: Scope, value: Any) -> Any:
        return type(value)


@dataclass(frozen=True, eq=False)
class Item(Derived):
    """`base[key]` for a constant key. `kind` names the container, whose class guards must pin:
    a list, tuple or dict is read without calling a `__getitem__` that a subclass defines."""

    key: Any
    kind: ItemKind = "any"
    own_class: bool = False  # the container's class may define subscripts of its own

    def __eq__(self, other: object) -> bool:
        # 1, True and 1.0 are one key for a dict but three for a subscript that is to be compiled
        return (
            isinstance(other, Item)
            and (type(self.key), self.key, self.kind) == (type(other.key), other.key, other.kind)
            and self.base == other.base
        )

    def __hash__(self) -> int:
        return hash((Item, self.base, self.key, self.kind))

    def name(self) -> str:
        return f"{self.base.name()}[{self.key!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return ITEM_READERS[self.kind](value, self.key)


def item_of(container: Any, source: Source, key: Any, kind: ItemKind) -> Item:
    """The source of an item of a container."""
    plain = kind == "any" or type(container).__getitem__ is _CONTAINERS[kind].__getitem__
    return Item(source, key, kind, not plain)


_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "dict": dict}


@dataclass(frozen=True)
class DictKey(Derived):
    """The key at a position of a dict, in the dict's own order."""

    index: int

    def name(self) -> str:
        return f"list({self.base.name()})[{self.index}]"

    def read(self, scope: Scope, value: Any) -> Any:
        if not isinstance(value, dict) or not 0 <= self.index < len(value):
            raise LookupError(self.index)
        return next(islice(iter(value), self.index, None))


@dataclass(frozen=True, eq=False)
class KnownKey(Derived):
    """The key at a position of a dict where that is an object of which there is but one, as a
    tensor is: it is looked up, not counted up to."""

    key: Any = field(repr=False)
    index: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KnownKey) or other.key is not self.key:
            return False
        return other.base == self.base

    def __hash__(self) -> int:
        return hash((KnownKey, self.base, id(self.key)))

    def name(self) -> str:
        return f"list({self.base.name()})[{self.index}]"

    def read(self, scope: Scope, value: Any) -> Any:
        if not isinstance(value, dict) or not dict.__contains__(value, self.key):
            raise LookupError(self.index)
        return self.key


@dataclass(frozen=True)
class GlobalOf(Derived):
    """A name in the module of a function (base) that was inlined."""

    variable: str

    def name(self) -> str:
        return f"{self.base.name()}.__globals__[{self.variable!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return _dict_item(value.__globals__, self.variable)


@dataclass(frozen=True)
class ClosureCell(Derived):
    """The content of a closure cell of a function (base) that was inlined."""

    index: int

    def name(self) -> str:
        return f"{self.base.name()}.__closure__[{self.index}].cell_contents"

    def read(self, scope: Scope, value: Any) -> Any:
        return _tuple_item(value.__closure__, self.index).cell_contents


@dataclass(frozen=True)
class Default(Derived):
    """A positional default of a function (base)."""

    index: int

    def name(self) -> str:
        return f"{self.base.name()}.__defaults__[{self.index}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return _tuple_item(value.__defaults__, self.index)


@dataclass(frozen=True)
class KwDefault(Derived):
    """A keyword-only default of a function (base)."""

    argument: str

    def name(self) -> str:
        return f"{self.base.name()}.__kwdefaults__[{self.argument!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return _dict_item(value.__kwdefaults__, self.argument)


@dataclass(frozen=True)
class SizeOf(Derived):
    """A size of a tensor (base): the value of a symbol. Guards read the tensor instead."""

    dim: int

    def name(self) -> str:
        return f"{self.base.name()}.size({self.dim})"

    def read(self, scope: Scope, value: Any) -> Any:
        return value.size(self.dim)


@dataclass(frozen=True)
class NextItem(Derived):
    """What an iterator will give after `index` other items; it is not advanced."""

    index: int

    def name(self) -> str:
        return f"next({self.base.name()}, {self.index})"

    def read(self, scope: Scope, value: Any) -> Any:
        return look_ahead(value, self.index)


@dataclass(frozen=True)
class Called(Derived):
    """`function(base)`: another view of an object that cannot be read as it is."""

    function: Callable[[Any], Any]

    def name(self) -> str:
        return f"{self.function.__name__}({self.base.name()})"

    def read(self, scope: Scope, value: Any) -> Any:
        return self.function(value)


def instance_dict(value: Any) -> dict[str, Any]:
    """The object's own attributes. Raises where it has none; a class has none in this sense."""
    attributes = object.__getattribute__(value, "__dict__")
    if not isinstance(attributes, dict):
        raise LookupError("__dict__")
    return attributes


def _absent(key: Any) -> Any:
    raise LookupError(key)


def _list_item(value: Any, key: Any) -> Any:
    if not isinstance(value, list):
        raise LookupError(key)
    return list.__getitem__(value, key)


def _tuple_item(value: Any, key: Any) -> Any:
    if not isinstance(value, tuple):
        raise LookupError(key)
    return tuple.__getitem__(value, key)


def _dict_item(value: Any, key: Any) -> Any:
    if not isinstance(value, dict) or not dict.__contains__(value, key):
        raise LookupError(key)
    return dict.__getitem__(value, key)


ITEM_READERS: dict[ItemKind, Callable[[Any, Any], Any]] = {
    "list": _list_item,
    "tuple": _tuple_item,
    "dict": _dict_item,
    "any": operator.getitem,
}


class Loader(Protocol):
    """What `emit` needs of the code being written: a global name for an object."""

    def global_name(self, obj: Any) -> str: ...


def emit(source: Source, tx: Loader) -> list[Instruction]:
    """The instructions that push the value of `source`, in the running version's dialect."""
    if type(source) in _BY_THEMSELVES:
        return _BY_THEMSELVES[type(source)](spelling, source, tx)
    parent = [] if source.parent is None else emit(source.parent, tx)
    by_call = _CALLED[type(source)](source) if type(source) in _CALLED else None
    if isinstance(source, Item) and source.own_class:
        by_call = ITEM_READERS[source.kind], (source.key,)
    if by_call is not None:
        function, arguments = by_call
        constants = [spelling.load_const(argument) for argument in arguments]
        return [
            *spelling.callable_from(spelling.load_global(tx.global_name(function))),
            *parent,
            *(instruction for group in constants for instruction in group),
            *spelling.call(1 + len(arguments)),
        ]
    for attribute, key in _STEPS[type(source)](source):
        if attribute is not None:
            parent += spelling.load_attr(attribute)
        else:
            parent += [*spelling.load_const(key), *spelling.binary_subscr()]
    return parent


def _size_of(tensor: Any, dim: int) -> int:
    return int(tensor.size(dim))


def _key_at(mapping: dict[Any, Any], index: int) -> Any:
    return next(islice(iter(mapping), index, None))


_BY_THEMSELVES: dict[type[Source], Callable[[Any, Any, Loader], list[Instruction]]] = {
    Local: lambda spelling, node, tx: list(spelling.load_fast(node.variable)),
    ClosureSource: lambda spelling, node, tx: list(spelling.load_deref(node.variable)),
    FreeCell: lambda spelling, node, tx: list(spelling.load_closure(node.variable)),
    Global: lambda spelling, node, tx: list(spelling.load_global(node.variable)),
    Builtin: lambda spelling, node, tx: list(spelling.load_global(node.variable)),
    ConstantSource: lambda spelling, node, tx: list(
        spelling.load_global(tx.global_name(node.object))
    ),
    KnownKey: lambda spelling, node, tx: list(spelling.load_global(tx.global_name(node.key))),
    SymbolExprSource: lambda spelling, node, tx: [
        *spelling.callable_from(spelling.load_global(tx.global_name(node.function))),
        *(instruction for argument in node.arguments for instruction in emit(argument, tx)),
        *spelling.call(len(node.arguments)),
    ],
    CallResultSource: lambda spelling, node, tx: [
        *spelling.callable_from(spelling.load_global(tx.global_name(node.make))),
        *emit(node.of, tx),
        *(instruction for number in node.numbers for instruction in emit(number, tx)),
        *spelling.call(1 + len(node.numbers)),
    ],
}

# steps that only a call can make: the function, and the constants after the base
_CALLED: dict[type[Source], Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    ClassOf: lambda node: (type, ()),
    DictKey: lambda node: (_key_at, (node.index,)),
    NextItem: lambda node: (look_ahead, (node.index,)),
    SizeOf: lambda node: (_size_of, (node.dim,)),
    Called: lambda node: (node.function, ()),
}

# steps made of attributes and subscripts: (attribute, None) or (None, key), in order
_STEPS: dict[type[Source], Callable[[Any], list[tuple[str | None, Any]]]] = {
    Attr: lambda node: [(node.attribute, None)],
    InstanceAttr: lambda node: [(node.attribute, None)],
    ClassEntry: lambda node: [("__dict__", None), (None, node.entry)],
    ModuleEntry: lambda node: [(node.table, None), (None, node.entry)],
    Item: lambda node: [(None, node.key)],
    GlobalOf: lambda node: [("__globals__", None), (None, node.variable)],
    ClosureCell: lambda node: [("__closure__", None), (None, node.index), ("cell_contents", None)],
    Default: lambda node: [("__defaults__", None), (None, node.index)],
    KwDefault: lambda node: [("__kwdefaults__", None), (None, node.argument)],
}
