"""Where a value came from.

In: the steps that lead from a frame to an object, as a tree of frozen nodes whose roots are the
frame's locals, closure, globals and builtins. Out: two views of the same path, `load` (plain
Python, what guards read) and `emit` (the bytecode that loads the value again), and a `name` for
messages. Invariant: a source says how to find an object and never holds it, except `Held`.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from flambeau_capture.lookahead import look_ahead

if TYPE_CHECKING:
    from flambeau_capture.bytecode.instruction import Instruction

ItemKind = Literal["list", "tuple", "dict", "any"]
ModuleTable = Literal["_parameters", "_buffers", "_modules"]


@dataclass(frozen=True)
class Scope:
    """What a frame is entered with: arguments, contents of closure cells, and the two dicts.
    `cells` are the closure's cells themselves."""

    locals: Mapping[str, Any]
    free: Mapping[str, Any]
    globals: Mapping[str, Any]
    builtins: Mapping[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        code: CodeType,
        func: FunctionType,
        arguments: Mapping[str, Any],
        free: Mapping[str, Any],
    ) -> Scope:
        """Of a frame that runs a function's code."""
        cells = dict(zip(code.co_freevars, func.__closure__ or ()))
        return cls(arguments, free, func.__globals__, vars(builtins), cells)


@dataclass(frozen=True)
class Source:
    """A node of the tree. `base` is None for a root."""

    scheme: ClassVar[str] = ""

    @property
    def parent(self) -> Source | None:
        return None

    def name(self) -> str:
        raise NotImplementedError

    def read(self, scope: Scope, value: Any) -> Any:
        """The value of this node, given its parent's; any exception means 'not there'."""
        raise NotImplementedError

    def path(self) -> tuple[Source, ...]:
        """The nodes from the root to this one."""
        nodes: list[Source] = []
        node: Source | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return tuple(reversed(nodes))

    def root(self) -> Source:
        return self.path()[0]

    def is_local(self) -> bool:
        """Whether the path starts at an argument or a closure cell of the frame."""
        return isinstance(self.root(), Local | Free | FreeCell)

    def __str__(self) -> str:
        return f"{self.root().scheme} {_plain(self)!r}"


@dataclass(frozen=True)
class Local(Source):
    """An argument of the frame, by its name."""

    variable: str
    scheme: ClassVar[str] = "local"

    def name(self) -> str:
        return f"L[{self.variable!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return scope.locals[self.variable]


@dataclass(frozen=True)
class Free(Source):
    """The content of a closure cell of the frame's own function."""

    variable: str
    scheme: ClassVar[str] = "free"

    def name(self) -> str:
        return f"F[{self.variable!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return scope.free[self.variable]


@dataclass(frozen=True)
class FreeCell(Source):
    """A closure cell of the frame's own function, full or empty: not what it holds."""

    variable: str
    scheme: ClassVar[str] = "cell"

    def name(self) -> str:
        return f"C[{self.variable!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return scope.cells[self.variable]


@dataclass(frozen=True)
class Global(Source):
    """A name in the dict of the frame's own module."""

    variable: str
    scheme: ClassVar[str] = "global"

    def name(self) -> str:
        return f"G[{self.variable!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return scope.globals[self.variable]


@dataclass(frozen=True)
class Builtin(Source):
    """A name in the frame's builtins. That no global hides it is another guard's matter."""

    variable: str
    scheme: ClassVar[str] = "builtin"

    def name(self) -> str:
        return f"B[{self.variable!r}]"

    def read(self, scope: Scope, value: Any) -> Any:
        return scope.builtins[self.variable]


@dataclass(frozen=True, eq=False)
class Held(Source):
    """An object that the compiled entry itself keeps alive: it needs no guard to be reached."""

    object: Any = field(repr=False)
    label: str = "held"
    scheme: ClassVar[str] = "held"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.object is self.object

    def __hash__(self) -> int:
        return hash((Held, id(self.object)))

    def name(self) -> str:
        return f"<{self.label}>"

    def read(self, scope: Scope, value: Any) -> Any:
        return self.object


@dataclass(frozen=True)
class Derived(Source):
    """A step from another source."""

    base: Source

    @property
    def parent(self) -> Source:
        return self.base


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
        return _ITEM_READERS[self.kind](value, self.key)


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
class Computed(Source):
    """A number that Python computes of others: the value of a symbol. Guards never read it, but
    what it is computed of."""

    function: Callable[..., Any]
    arguments: tuple[Source, ...]
    scheme: ClassVar[str] = "number"

    def name(self) -> str:
        return f"{self.function.__name__}({', '.join(a.name() for a in self.arguments)})"

    def read(self, scope: Scope, value: Any) -> Any:
        return self.function(*(load(argument, scope) for argument in self.arguments))

    def count(self) -> int:
        """How many numbers it takes to compute it."""
        return 1 + sum(a.count() if isinstance(a, Computed) else 1 for a in self.arguments)


@dataclass(frozen=True)
class Made(Source):
    """What `make` gives for an object and numbers just before the graph is called. To read it does
    something (a generator moves on): no guard does, and generated code does so once."""

    of: Source
    make: Callable[..., Any]
    numbers: tuple[Source, ...]
    verb: str
    step: int
    scheme: ClassVar[str] = "made"

    def name(self) -> str:
        return f"{self.verb}({self.of.name()}, {self.step})"

    def read(self, scope: Scope, value: Any) -> Any:
        raise LookupError(self.name())


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


def load(source: Source, scope: Scope) -> Any:
    """The value `source` names in `scope`. Raises whatever the access raises."""
    value: Any = None
    for node in source.path():
        value = node.read(scope, value)
    return value


class Loader(Protocol):
    """What `emit` needs of the code being written: a global name for an object held by it."""

    def held(self, obj: Any) -> str: ...


def emit(source: Source, tx: Loader) -> list[Instruction]:
    """The instructions that push the value of `source`, in the running version's dialect."""
    # bytecode is imported at first use: guards read sources where nothing is assembled
    from flambeau_capture.bytecode import spelling

    parent = [] if source.parent is None else emit(source.parent, tx)
    if type(source) in _ROOT_EMITTERS:
        return _ROOT_EMITTERS[type(source)](spelling, source, tx)
    if type(source) in _CALLED:
        function, arguments = _CALLED[type(source)](source)
        constants = [spelling.load_const(argument) for argument in arguments]
        return [
            *spelling.callable_from(spelling.load_global(tx.held(function))),
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


def _plain(source: Source) -> str:
    """The path as the user would write it: no marks of where its root lives."""
    text = source.name()
    root = source.root()
    if isinstance(root, Held):
        return text
    variable = getattr(root, "variable", "")
    return text.replace(root.name(), str(variable), 1)


def instance_dict(value: Any) -> dict[str, Any]:
    """The object's own attributes. Raises where it has none; a class has none in this sense."""
    attributes = object.__getattribute__(value, "__dict__")
    if not isinstance(attributes, dict):
        raise LookupError("__dict__")
    return attributes


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


_ITEM_READERS: dict[ItemKind, Callable[[Any, Any], Any]] = {
    "list": _list_item,
    "tuple": _tuple_item,
    "dict": _dict_item,
    "any": operator.getitem,
}


def _size_of(tensor: Any, dim: int) -> int:
    return int(tensor.size(dim))


def _key_at(mapping: dict[Any, Any], index: int) -> Any:
    return next(islice(iter(mapping), index, None))


_ROOT_EMITTERS: dict[type[Source], Callable[[Any, Any, Loader], list[Instruction]]] = {
    Local: lambda spelling, node, tx: list(spelling.load_fast(node.variable)),
    Free: lambda spelling, node, tx: list(spelling.load_deref(node.variable)),
    FreeCell: lambda spelling, node, tx: list(spelling.load_closure(node.variable)),
    Global: lambda spelling, node, tx: list(spelling.load_global(node.variable)),
    Builtin: lambda spelling, node, tx: list(spelling.load_global(node.variable)),
    Held: lambda spelling, node, tx: list(spelling.load_global(tx.held(node.object))),
    Computed: lambda spelling, node, tx: [
        *spelling.callable_from(spelling.load_global(tx.held(node.function))),
        *(instruction for argument in node.arguments for instruction in emit(argument, tx)),
        *spelling.call(len(node.arguments)),
    ],
    Made: lambda spelling, node, tx: [
        *spelling.callable_from(spelling.load_global(tx.held(node.make))),
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
    ModuleEntry: lambda node: [(node.table, None), (None, node.entry)],
    Item: lambda node: [(None, node.key)],
    GlobalOf: lambda node: [("__globals__", None), (None, node.variable)],
    ClosureCell: lambda node: [("__closure__", None), (None, node.index), ("cell_contents", None)],
    Default: lambda node: [("__defaults__", None), (None, node.index)],
    KwDefault: lambda node: [("__kwdefaults__", None), (None, node.argument)],
}
