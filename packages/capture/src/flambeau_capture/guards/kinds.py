"""Table of guard kinds.

In: a value and the guard's parameters. Out: whether the guard holds (plain Python), which native
check does the same, and the two texts of an explanation. Invariant: the native check named in a row
and its Python function agree on every value; tests hold them to it.
"""

from __future__ import annotations

import collections
import enum
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from flambeau_capture.guards.equality import Reference, keys_of, same
from flambeau_capture.source import InstanceAttr, Source, instance_dict

Params = tuple[Any, ...]


@dataclass(frozen=True)
class GuardKind:
    """`check` gives the native check and its argument. `step` leads from the guard's source to the
    value that is examined. Kinds of low `cost` are evaluated first on the same value."""

    name: str
    holds: Callable[[Any, Params], bool]
    check: Callable[[Params], tuple[str, Any]]
    expected: Callable[[Params], str]
    got: Callable[[Any, Params], str]
    cost: int = 1
    step: Callable[[Source], Source] | None = None
    prepare: Callable[[Params], Params] | None = None


KINDS: dict[str, GuardKind] = {}


def register(kind: GuardKind) -> GuardKind:
    if kind.name in KINDS:
        raise ValueError(f"guard kind {kind.name} is there already")
    KINDS[kind.name] = kind
    return kind


def shown(value: Any) -> str:
    """The value in one short line, for which no code of the program is run."""
    try:
        text = " ".join(_text(value).split())
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def _of_python(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return top in sys.stdlib_module_names or top == "torch"


#: classes of objects that refer to others and whose repr does not show those
_SHOWN_BY_NAME = (type, FunctionType, BuiltinFunctionType, ModuleType, enum.Enum)


def _text(value: Any) -> str:
    if type(value) is tuple or type(value) is list:
        parts = ", ".join(shown(part) for part in value[:8]) + (", ..." if len(value) > 8 else "")
        if type(value) is list:
            return f"[{parts}]"
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if type(value) is dict:
        keys = [*value][:8]
        parts = ", ".join(f"{shown(key)}: {shown(value[key])}" for key in keys)
        return f"{{{parts}{', ...' if len(value) > 8 else ''}}}"
    kind, of_torch = type(value), type(value).__module__.partition(".")[0] == "torch"
    if of_torch and hasattr(value, "layout"):
        return f"{kind.__name__} of sizes {tuple(value.shape)}"  # not what it holds
    own = entry_of(kind, "__repr__")[-1]
    if isinstance(own, FunctionType):
        runs_nothing = _of_python(own.__module__) and not gc.is_tracked(value)
    else:  # a container's repr is that of what it holds
        runs_nothing = of_torch or not gc.is_tracked(value)
    by_name = issubclass(kind, _SHOWN_BY_NAME) or kind.__module__ == "torch._ops"  # operators
    if not runs_nothing and not by_name:
        return f"{kind.__module__}.{kind.__qualname__} object"
    return repr(value)


def _show_param(params: Params) -> str:
    return shown(params[0])


def _show_value(value: Any, params: Params) -> str:
    return shown(value)


def _show_object(params: Params) -> str:
    found = params[0]()
    if found is None:
        return "an object that is gone"
    text = shown(found)
    return f"the {text}" if text.endswith(" object") else f"the object {text}"


def _show_other_object(value: Any, params: Params) -> str:
    return f"another object, {shown(value)}"


def _show_class(value: Any, params: Params) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _kind(
    name: str,
    holds: Callable[[Any, Params], bool],
    check: Callable[[Params], tuple[str, Any]],
    expected: Callable[[Params], str],
    got: Callable[[Any, Params], str] = _show_value,
    **more: Any,
) -> GuardKind:
    return register(GuardKind(name, holds, check, expected, got, **more))


def _identity_check(params: Params) -> tuple[str, Any]:
    reference: Reference = params[0]
    return ("IS", reference()) if reference.weak is None else ("WEAK_IS", reference.weak)


def _is_referent(value: Any, params: Params) -> bool:
    return params[0]() is value and (value is not None or params[0].weak is None)


for _name in ("ID_MATCH", "FUNCTION_MATCH", "WEAKREF_MATCH"):
    _kind(
        _name,
        _is_referent,
        _identity_check,
        _show_object,
        _show_other_object,
        cost=0,
        prepare=lambda params: (Reference(params[0]),),
    )

_kind(
    "NONE_MATCH",
    holds=lambda value, params: value is None,
    check=lambda params: ("IS", None),
    expected=lambda params: "None",
    cost=0,
)

_kind(
    "BOOL_MATCH",
    holds=lambda value, params: value is params[0],
    check=lambda params: ("IS", params[0]),
    expected=_show_param,
    cost=0,
    prepare=lambda params: (_the_bool(params[0]),),
)

_kind(
    "MODULE_TRAINING",
    holds=lambda value, params: value is params[0],
    check=lambda params: ("IS", params[0]),
    expected=lambda params: f"training={params[0]}",
    got=lambda value, params: f"training={shown(value)}",
    cost=0,
    step=lambda source: InstanceAttr(source, "training"),
    prepare=lambda params: (_the_bool(params[0]),),
)

_kind(
    "TYPE_MATCH",
    holds=lambda value, params: type(value) is params[0],
    check=lambda params: ("TYPE_IS", params[0]),
    expected=lambda params: f"{params[0].__module__}.{params[0].__qualname__}",
    got=_show_class,
    cost=0,
)

CONSTANT_MATCH = _kind(
    "CONSTANT_MATCH",
    holds=lambda value, params: same(params[0], value),
    check=lambda params: ("SAME", params[0]),
    expected=_show_param,
    prepare=lambda params: (_a_constant(params[0]),),
)


def _items_of(value: Any) -> int:
    """How many items a container holds, whatever a `__len__` of its own says."""
    bases = (tuple, list, dict, set, frozenset, collections.deque)
    base = next((base for base in bases if isinstance(value, base)), None)
    return len(value) if base is None else base.__len__(value)


def _length(name: str, cls: type | None) -> None:
    owner = "length" if cls is None else f"{cls.__name__} of length"
    _kind(
        name,
        lambda value, params: (cls is None or type(value) is cls) and _items_of(value) == params[0],
        lambda params: (name, params[0]),
        lambda params: f"{owner} {params[0]}",
        lambda value, params: f"{_show_class(value, params)} of length {_items_of(value)}",
    )


_length("LENGTH", None)
_length("LIST_LENGTH", list)
_length("TUPLE_LENGTH", tuple)


def _keys_hold(value: Any, params: Params) -> bool:
    keys, ordered = params
    if not isinstance(value, dict) or dict.__len__(value) != len(keys):
        return False
    found = keys_of(value)
    return same(found, keys) if ordered else same(frozenset(found), frozenset(keys))


def _keys_check(params: Params) -> tuple[str, Any]:
    if params[1]:
        return "DICT_KEYS", params[0]
    return "PREDICATE", partial(_ask, _keys_hold, params)


_kind(
    "DICT_KEYS",
    holds=_keys_hold,
    check=_keys_check,
    expected=lambda params: f"keys {shown(params[0])}",
    got=lambda value, params: f"keys {shown(tuple(value))}",
    cost=2,
    prepare=lambda params: (tuple(params[0]), params[1] if len(params) > 1 else True),
)


def _dict_key(name: str, check: str, has: bool) -> None:
    _kind(
        name,
        lambda value, params: (
            isinstance(value, dict) and dict.__contains__(value, params[0]) is has
        ),
        lambda params: (check, params[0]),
        lambda params: f"a dict with{'' if has else 'out'} key {shown(params[0])}",
        lambda value, params: f"keys {shown(tuple(value))}",
    )


_dict_key("DICT_CONTAINS", "DICT_HAS", True)
_dict_key("DICT_NOT_CONTAINS", "DICT_LACKS", False)


def _ask(holds: Callable[[Any, Params], bool], params: Params, value: Any) -> bool:
    return holds(value, params)


def _set_member(name: str, has: bool) -> None:
    def holds(value: Any, params: Params) -> bool:
        if not isinstance(value, set | frozenset):
            return False
        base: Any = set if isinstance(value, set) else frozenset  # not a `__contains__` of its own
        return base.__contains__(value, params[0]) is has

    _kind(
        name,
        holds,
        lambda params: ("PREDICATE", partial(_ask, holds, params)),
        lambda params: f"a set with{'' if has else 'out'} {shown(params[0])}",
        cost=3,
    )


_set_member("SET_CONTAINS", True)
_set_member("SET_NOT_CONTAINS", False)

EXISTS = _kind(
    "EXISTS",
    holds=lambda value, params: True,  # that it could be read is all
    check=lambda params: ("PIN", 0),  # none: see `guards.tree`
    expected=lambda params: "something",
    got=lambda value, params: shown(value),
    cost=0,
)


def _attribute(name: str, check: str, has: bool) -> None:
    _kind(
        name,
        lambda value, params: hasattr(value, params[0]) is has,
        lambda params: (check, params[0]),
        lambda params: f"{'an' if has else 'no'} attribute {params[0]}",
        lambda value, params: f"{shown(value)} with{'out' if has else ''} it",
        cost=2,
    )


_attribute("HASATTR", "HAS_ATTR", True)
_attribute("NOT_HASATTR", "LACKS_ATTR", False)


def _instance_lacks(value: Any, params: Params) -> bool:
    try:
        attributes = instance_dict(value)
    except Exception:  # no dict of its own: nothing to hold the name
        return True
    return params[0] not in attributes


_kind(
    "NOT_IN_INSTANCE_DICT",
    holds=_instance_lacks,
    check=lambda params: ("INSTANCE_LACKS", params[0]),
    expected=lambda params: f"no {params[0]} in the instance's __dict__",
    got=lambda value, params: f"{params[0]} = {shown(instance_dict(value)[params[0]])}",
)

#: methods that a class may gain or lose and that change what its instances do; not those that make
#: an instance, which concern a frame that makes one (`assume_making`)
SPECIAL_NAMES = tuple(
    f"__{name}__"
    for name in (
        "getattribute", "getattr", "setattr", "delattr", "call", "bool", "len",
        "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem", "missing", "eq",
        "ne", "lt", "le", "gt", "ge", "hash", "enter", "exit", "get", "set", "index", "int",
        "float", "add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "truediv",
        "rtruediv", "itruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "matmul",
        "rmatmul", "and", "rand", "or", "ror", "xor", "rxor", "neg", "pos", "abs", "invert",
        "torch_function", "instancecheck", "subclasscheck", "delete",
    )
)  # fmt: skip


#: a name, and what a class has under it; a name alone: it has nothing. (None is something.)
Entry = tuple[str] | tuple[str, Any]


def entry_of(python_class: type, name: str) -> Entry:
    """What stands in a class, or one that it derives from, before any descriptor is called."""
    for owner in python_class.__mro__:
        if name in owner.__dict__:
            return name, owner.__dict__[name]
    return (name,)


def _special_methods(python_class: type) -> tuple[Entry, ...]:
    return tuple(entry_of(python_class, name) for name in SPECIAL_NAMES)


def _changed_special(python_class: type, params: Params) -> str | None:
    return next((row[0] for row in params[0] if not _entry_unchanged(python_class, row)), None)


def _entry_unchanged(python_class: type, row: Entry) -> bool:
    now = entry_of(python_class, row[0])
    return len(now) == len(row) and all(one is other for one, other in zip(now[1:], row[1:]))


_kind(
    "CLASS_SPECIALS",
    holds=lambda value, params: _entry_holds(value, params),
    check=lambda params: ("TYPE_METHODS", params[0]),
    expected=lambda params: "the special methods of before",
    got=lambda value, params: f"another {_changed_special(value, params)}",
    cost=2,
    prepare=lambda params: (_special_methods(params[0]),),
)


def _entry_holds(value: Any, params: Params) -> bool:
    return isinstance(value, type) and _changed_special(value, params) is None


def _shown_entry(params: Params) -> str:
    names = [row[0] for row in params[0] if len(row) == 2]
    missing = [row[0] for row in params[0] if len(row) == 1]
    told = [f"{', '.join(names)} as before"] if names else []
    return "; ".join(told + ([f"no {', '.join(missing)}"] if missing else []))


def _got_entry(value: Any, params: Params) -> str:
    name = _changed_special(value, params)
    if not isinstance(value, type) or name is None:
        return shown(value)
    now = entry_of(value, name)
    return f"{name} = {shown(now[1])}" if len(now) == 2 else f"no {name}"


#: the entries of a class, as `entry_of` finds them
CLASS_ENTRY = _kind(
    "CLASS_ENTRY",
    holds=_entry_holds,
    check=lambda params: ("TYPE_METHODS", params[0]),
    expected=_shown_entry,
    got=_got_entry,
)


def _class_entry(name: str, has: bool) -> None:
    _kind(
        name,
        lambda value, params: isinstance(value, type) and (params[0] in vars(value)) is has,
        lambda params: (name, params[0]),
        lambda params: f"a class with{'' if has else 'out'} {params[0]} of its own",
        lambda value, params: f"{shown(value)} with{'out' if has else ''} it",
    )


_class_entry("CLASS_HAS", True)
_class_entry("CLASS_LACKS", False)

_kind(
    "SUBCLASS",
    holds=lambda value, params: _is_subclass(value, params),
    check=lambda params: ("PREDICATE", partial(_ask, _is_subclass, params)),
    expected=lambda params: f"{'a' if params[1] else 'no'} subclass of {shown(params[0])}",
    cost=3,
)

#: what a function without arguments answers: the state of the process or the thread
ANSWER = _kind(
    "ANSWER",
    holds=lambda value, params: _answers(value, params),
    check=lambda params: ("PREDICATE", partial(_ask, _answers, params)),
    expected=_show_param,
    got=lambda value, params: shown(value()),
    cost=3,
    prepare=lambda params: (_a_constant(params[0]),),
)

CALL = _kind(
    "CALL",
    holds=lambda value, params: bool(params[0](value)),
    check=lambda params: ("PREDICATE", params[0]),
    expected=lambda params: str(params[1]) if len(params) > 1 else shown(params[0]),
    cost=4,
)


def _is_subclass(value: Any, params: Params) -> bool:
    return issubclass(value, params[0]) is params[1]


def _answers(value: Any, params: Params) -> bool:
    return same(params[0], value())


def _the_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"a bool is wanted, not {shown(value)}")
    return value


def _a_constant(value: Any) -> Any:
    if isinstance(value, list | dict | set | bytearray):
        raise TypeError(f"a guard cannot hold {type(value).__name__} as a constant: it may change")
    return value
