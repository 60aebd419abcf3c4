"""Bytecode that loads a source.

In: a source, and the code being written. Out: instructions in the running version's dialect, which
leave the value on the stack. Invariant: every kind of source is in exactly one of three tables.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from flambeau_capture.bytecode import spelling
from flambeau_capture.lookahead import look_ahead
from flambeau_capture.source.base import Source
from flambeau_capture.source.roots import (
    Builtin,
    CallResultSource,
    ClosureSource,
    ConstantSource,
    FreeCell,
    Global,
    Local,
    SymbolExprSource,
)
from flambeau_capture.source.steps import (
    ITEM_READERS,
    Attr,
    Called,
    ClassEntry,
    ClassOf,
    ClosureCell,
    Default,
    DictKey,
    GlobalOf,
    InstanceAttr,
    Item,
    KnownKey,
    KwDefault,
    ModuleEntry,
    NextItem,
    SizeOf,
)

if TYPE_CHECKING:
    from flambeau_capture.bytecode.instruction import Instruction


class Loader(Protocol):
    """What `emit` needs of the code being written: a global name for an object held by it."""

    def held(self, obj: Any) -> str: ...


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
    ConstantSource: lambda spelling, node, tx: list(spelling.load_global(tx.held(node.object))),
    KnownKey: lambda spelling, node, tx: list(spelling.load_global(tx.held(node.key))),
    SymbolExprSource: lambda spelling, node, tx: [
        *spelling.callable_from(spelling.load_global(tx.held(node.function))),
        *(instruction for argument in node.arguments for instruction in emit(argument, tx)),
        *spelling.call(len(node.arguments)),
    ],
    CallResultSource: lambda spelling, node, tx: [
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
    ClassEntry: lambda node: [("__dict__", None), (None, node.entry)],
    ModuleEntry: lambda node: [(node.table, None), (None, node.entry)],
    Item: lambda node: [(None, node.key)],
    GlobalOf: lambda node: [("__globals__", None), (None, node.variable)],
    ClosureCell: lambda node: [("__closure__", None), (None, node.index), ("cell_contents", None)],
    Default: lambda node: [("__defaults__", None), (None, node.index)],
    KwDefault: lambda node: [("__kwdefaults__", None), (None, node.argument)],
}
