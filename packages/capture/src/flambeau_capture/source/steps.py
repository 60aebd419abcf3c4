"""Derived sources (attributes, items, parts of functions and tensors), and bytecode that loads.

In: the source of the first object. Out: the source of the second; `emit`: the instructions that
load it again. Invariant: where a step names the container, it is read without what a subclass of it
defines.
"""

from __future__ import annotations

import operator
import threading
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from flambeau_capture._native import disabled
from flambeau_capture.bytecode import spelling
from flambeau_capture.lookahead import look_ahead, looking_ahead
from flambeau_capture.source.base import (
    Builtin,
    CallResultSource,
    ClosureSource,
    ConstantSource,
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
Step = tuple[str, Any]  # an access and its key


@dataclass(frozen=True)
class Derived(Source):
    """A way from another source, in steps that the guard tree can take (see `ACCESSES`)."""

    base: Source

    @property
    def parent(self) -> Source:
        return self.base

    def steps(self) -> tuple[Step, ...]:
        raise NotImplementedError

    def read(self, scope: Scope, value: Any) -> Any:
        for access, key in self.steps():
            value = ACCESSES[access][0](value, key)
        return value

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """What generated code calls to read it, and the constants after the base; None: it spells
        the steps."""
        return None


@dataclass(frozen=True)
class Keyed(Derived):
    """An access by a key, to the base or to what the base has as its attribute `table`. `text`: how
    it is written."""

    key: Any
    access: ClassVar[str] = ""
    table: ClassVar[str] = ""
    text: ClassVar[str] = "{base}.{table}[{key!r}]"

    def name(self) -> str:
        return self.text.format(base=self.base.name(), table=self.table, key=self.key)

    def steps(self) -> tuple[Step, ...]:
        own = (self.access, self.key)
        return (("ATTR", self.table), own) if self.table else (own,)

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        read, spell = ACCESSES[self.access]
        return None if spell is not None else (read, (self.key,))


class Attr(Keyed):
    """`base.key`, with all that attribute access does (descriptors, `__getattr__`)."""

    access, text = "ATTR", "{base}.{key}"


@dataclass(frozen=True)
class InstanceAttr(Keyed):
    """`base.__dict__[key]`: no descriptor runs when a guard reads it. `of`: the class of the base,
    which may have code that runs when the attribute is loaded; then generated code reads the
    dictionary as well."""

    of: type | None = field(default=None, compare=False)

    access, text = "INSTANCE_ATTR", "{base}.{key}"

    def steps(self) -> tuple[Step, ...]:
        if self.of is None or not issubclass(self.of, threading.local):
            return super().steps()
        return ("CALLED", raw_dict), ("DICT_ITEM", self.key)

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        asked = self.of is not None and answers_attribute(self.of, self.key)
        return (ACCESSES[self.access][0], (self.key,)) if asked else None


def answers_attribute(kind: type, name: str) -> bool:
    """Whether loading an attribute that an instance has may run code, or give something else."""
    if answers_attributes(kind):
        return True
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


def answers_attributes(kind: type) -> bool:
    """Whether a class of the program defines `__getattribute__`, or what `__dict__` gives; of a
    `threading.local` the thread decides that."""
    if issubclass(kind, threading.local):
        return True
    plain = {
        "__getattribute__": types.WrapperDescriptorType,
        "__dict__": types.GetSetDescriptorType | types.MemberDescriptorType,
    }
    for name, slot in plain.items():
        found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
        if found is not None and not isinstance(found, slot):
            return True
    return False


@dataclass(frozen=True)
class ModuleEntry(Derived):
    """A parameter, buffer or submodule of an `nn.Module`, read from the dict that holds it. `of`:
    the module's class."""

    table: ModuleTable
    entry: str
    of: type | None = field(default=None, compare=False)

    def name(self) -> str:
        if self.entry.isidentifier():
            return f"{self.base.name()}.{self.entry}"
        return f"{self.base.name()}.{self.table}[{self.entry!r}]"

    def steps(self) -> tuple[Step, ...]:
        return ("INSTANCE_ATTR", self.table), ("DICT_ITEM", self.entry)

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        asked = self.of is not None and answers_attribute(self.of, self.table)
        return (_module_entry, (self.table, self.entry)) if asked else None


class ClassEntry(Keyed):
    """`vars(base)[key]` of a class: what stands there, no descriptor called."""

    access, text = "CLASS_ENTRY", "vars({base})[{key!r}]"


#: keys that are compared; of others an equal one is another: how they compare is their class's
_BY_VALUE = frozenset(
    {int, float, bool, complex, str, bytes, tuple, frozenset, slice, type(None), type(...)}
)


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
            and (type(self.key), self.kind) == (type(other.key), other.kind)
            and (self.key is other.key or (type(self.key) in _BY_VALUE and self.key == other.key))
            and self.base == other.base
        )

    def __hash__(self) -> int:
        return hash((Item, self.base, self.key, self.kind))

    def name(self) -> str:
        key = self.key
        shown = repr(key) if type(key) in _BY_VALUE else f"<{type(key).__name__} {id(key):#x}>"
        return f"{self.base.name()}[{shown}]"

    def steps(self) -> tuple[Step, ...]:
        return ((f"{self.kind.upper()}_ITEM", self.key),)

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        return (ACCESSES[self.steps()[0][0]][0], (self.key,)) if self.own_class else None


def item_of(container: Any, source: Source, key: Any, kind: ItemKind) -> Item:
    """The source of an item of a container."""
    plain = kind == "any" or type(container).__getitem__ is _CONTAINERS[kind].__getitem__
    return Item(source, key, kind, not plain)


_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "dict": dict}


class DictKey(Keyed):
    """The key at a position of a dict, in the dict's own order."""

    access, text = "DICT_KEY", "list({base})[{key}]"


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

    def steps(self) -> tuple[Step, ...]:
        return (("KNOWN_KEY", self.key),)


class GlobalOf(Keyed):
    """A name in the module of a function (base) that was inlined."""

    table, access = "__globals__", "DICT_ITEM"


class ClosureCell(Keyed):
    """The content of a closure cell of a function (base) that was inlined."""

    table, access, text = "__closure__", "TUPLE_ITEM", "{base}.{table}[{key}].cell_contents"

    def steps(self) -> tuple[Step, ...]:
        return *super().steps(), ("ATTR", "cell_contents")


class Default(Keyed):
    """A positional default of a function (base)."""

    table, access = "__defaults__", "TUPLE_ITEM"


class KwDefault(Keyed):
    """A keyword-only default of a function (base)."""

    table, access = "__kwdefaults__", "DICT_ITEM"


class SizeOf(Keyed):
    """A size of a tensor (base): the value of a symbol. Guards read the tensor instead."""

    access, text = "SIZE", "{base}.size({key})"


class NextItem(Keyed):
    """What an iterator will give after `key` other items; it is not advanced."""

    access, text = "CALLED", "next({base}, {key})"

    def steps(self) -> tuple[Step, ...]:
        return ((self.access, looking_ahead(self.key)),)

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return look_ahead, (self.key,)


class Called(Keyed):
    """`key(base)`: another view of an object that cannot be read as it is."""

    access, text = "CALLED", "{key.__name__}({base})"

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.key, ()


class CachedSource(Called):
    """What a cached function keeps for a call with an object (base), or for one of no object."""


class NumberOf(Called):
    """The number that a tensor (base) comes to by operations of the program: `key` replays them on
    a copy. It is another in every call, as a tensor's data is."""

    def called(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return disabled(self.key), ()


#: numbers that are computed whenever they are loaded
NUMBER_SOURCES = (SymbolExprSource, NumberOf)


def shared_numbers(sources: Iterable[Source]) -> list[Source]:
    """What several of these numbers are computed of, or one twice: each after its own parts."""
    times: dict[Source, int] = {}
    order: list[Source] = []

    def visit(source: Source) -> None:
        if not isinstance(source, NUMBER_SOURCES):
            return
        times[source] = times.get(source, 0) + 1
        if times[source] == 1:
            for part in source.arguments if isinstance(source, SymbolExprSource) else ():
                visit(part)
            order.append(source)

    for source in sources:
        visit(source)
    return [source for source in order if times[source] > 1]


def raw_dict(value: Any) -> Any:
    """An object's `__dict__` past a property of its class."""
    if issubclass(type(value), threading.local):
        return threading.local.__getattribute__(value, "__dict__")
    for kind in type(value).__mro__:
        found = vars(kind).get("__dict__")
        if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType):
            return found.__get__(value)
    raise AttributeError("__dict__")


def instance_dict(value: Any) -> dict[str, Any]:
    """The object's own attributes. Raises where it has none; a class has none in this sense."""
    attributes = raw_dict(value)
    if not isinstance(attributes, dict):
        raise LookupError("__dict__")
    return attributes


def _module_entry(module: Any, table: str, entry: str) -> Any:
    return _dict_item(_dict_item(instance_dict(module), table), entry)


def _class_entry(value: Any, name: str) -> Any:
    if not isinstance(value, type):
        raise LookupError(name)
    return vars(value)[name]


def _list_item(value: Any, key: Any) -> Any:
    if not isinstance(value, list):
        raise LookupError(key)
    return list.__getitem__(value, key)


def _tuple_item(value: Any, key: Any) -> Any:
    if not isinstance(value, tuple):
        raise LookupError(key)
    return tuple.__getitem__(value, key)


def _known_key(value: Any, key: Any) -> Any:
    if not isinstance(value, dict) or not dict.__contains__(value, key):
        raise LookupError(key)
    return key


def _dict_item(value: Any, key: Any) -> Any:
    return dict.__getitem__(value, _known_key(value, key))


def _key_at(value: Any, index: int) -> Any:
    if not isinstance(value, dict) or not 0 <= index < len(value):
        raise LookupError(index)
    return next(islice(iter(value), index, None))


def _size_of(tensor: Any, dim: int) -> int:
    return int(tensor.size(dim))


def _subscript(key: Any) -> list[Instruction]:
    return [*spelling.load_const(key), *spelling.binary_subscr()]


Spell = Callable[[Any], "list[Instruction]"]

#: what the guard tree calls an access: how Python reads it, of a value and a key; how bytecode
#: does, once the value is pushed (None: by calling that)
ACCESSES: dict[str, tuple[Callable[[Any, Any], Any], Spell | None]] = {
    "ATTR": (getattr, spelling.load_attr),
    "INSTANCE_ATTR": (
        lambda value, name: _dict_item(instance_dict(value), name),
        spelling.load_attr,
    ),
    "CLASS_ENTRY": (_class_entry, lambda n: [*spelling.load_attr("__dict__"), *_subscript(n)]),
    "LIST_ITEM": (_list_item, _subscript),
    "TUPLE_ITEM": (_tuple_item, _subscript),
    "DICT_ITEM": (_dict_item, _subscript),
    "ANY_ITEM": (operator.getitem, _subscript),
    "DICT_KEY": (_key_at, None),
    "KNOWN_KEY": (_known_key, None),
    "CALLED": (lambda value, function: function(value), None),
    "SIZE": (_size_of, None),
}


class Loader(Protocol):
    """What `emit` needs of the code being written: a global name for an object, and the variable
    that has the value of a source already."""

    def global_name(self, obj: Any) -> str: ...

    def variable_of(self, source: Source) -> str | None: ...


def emit(source: Source, tx: Loader) -> list[Instruction]:
    """The instructions that push the value of `source`, in the running version's dialect."""
    variable = tx.variable_of(source) if isinstance(source, NUMBER_SOURCES) else None
    if variable is not None:
        return spelling.load_fast_bound(variable)
    if not isinstance(source, Derived) or isinstance(source, KnownKey):
        return _BY_THEMSELVES[type(source)](source, tx)
    called = source.called()
    if called is not None:
        function, constants = called
        given = (spelling.load_const(constant) for constant in constants)
        return _call(tx, function, emit(source.base, tx), *given)
    made = emit(source.base, tx)
    for access, key in source.steps():
        spell = ACCESSES[access][1]
        assert spell is not None
        made += spell(key)
    return made


def _loaded(tx: Loader, obj: Any) -> list[Instruction]:
    return spelling.load_global(tx.global_name(obj))


def _call(tx: Loader, function: Any, *loads: list[Instruction]) -> list[Instruction]:
    given = [instruction for load in loads for instruction in load]
    return [*spelling.callable_from(_loaded(tx, function)), *given, *spelling.call(len(loads))]


_BY_THEMSELVES: dict[type[Source], Callable[[Any, Loader], list[Instruction]]] = {
    Local: lambda node, tx: spelling.load_fast(node.variable),
    ClosureSource: lambda node, tx: spelling.load_deref(node.variable),
    FreeCell: lambda node, tx: spelling.load_closure(node.variable),
    Global: lambda node, tx: spelling.load_global(node.variable),
    Builtin: lambda node, tx: spelling.load_global(node.variable),
    ConstantSource: lambda node, tx: _loaded(tx, node.object),
    KnownKey: lambda node, tx: _loaded(tx, node.key),
    SymbolExprSource: lambda node, tx: _call(
        tx, node.function, *(emit(argument, tx) for argument in node.arguments)
    ),
    CallResultSource: lambda node, tx: _call(
        tx, node.make, *(emit(given, tx) for given in (node.of, *node.numbers))
    ),
}
