"""Sources: the path by which a value was reached.

In: the steps that lead from a frame to an object, as a tree of frozen nodes whose roots are the
frame's locals, closure, globals and builtins. Out: two views of the same path, `load` (plain
Python, what guards read) and `emit` (the bytecode that loads the value again), and a `name` for
messages. Invariant: a source says how to find an object and never holds it, except
`ConstantSource`.
"""

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
    load,
)
from flambeau_capture.source.steps import (
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
    emit,
    instance_dict,
    item_of,
)

__all__ = [
    "Attr",
    "Builtin",
    "Called",
    "ClassEntry",
    "ClassOf",
    "ClosureCell",
    "SymbolExprSource",
    "Default",
    "DictKey",
    "ClosureSource",
    "FreeCell",
    "Global",
    "GlobalOf",
    "ConstantSource",
    "InstanceAttr",
    "Item",
    "KnownKey",
    "KwDefault",
    "Local",
    "CallResultSource",
    "ModuleEntry",
    "NextItem",
    "Scope",
    "SizeOf",
    "Source",
    "emit",
    "instance_dict",
    "item_of",
    "load",
]
