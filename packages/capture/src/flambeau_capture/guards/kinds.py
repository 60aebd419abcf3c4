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
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from flambeau_capture.guards.equality import Reference, keys_of, same
from flambeau_capture.source import InstanceAttr, Source, instance_dict

Params = tuple[Any, ...]


@dataclass(frozen=True)
class GuardKind:
    """`check` gives the native check and its argument. `step` leads from the guard's source to the
    value that is examined. Kinds of low `cost` are evaluated first on the same value. `relation` is
    None for a question about one value (or none, for the state of the process); "same", "distinct"
    and "sizes" are questions about the objects at several sources, taken together."""

    name: str
    holds: Callable[[Any, Params], bool]
    check: Callable[[Params], tuple[str, Any]]
    expected: Callable[[Params], str]
    got: Callable[[Any, Params], str]
    cost: int = 1
    step: Callable[[Source], Source] | None = None
    prepare: Callable[[Params], Params] | None = None
    relation: str | None = None


KINDS: dict[str, GuardKind] = {}


def register(
    name: str,
    holds: Callable[[Any, Params], bool],
    expected: Callable[[Params], str] = lambda params: shown(params[0]),
    got: Callable[[Any, Params], str] = lambda value, params: shown(value),
    check: str | Callable[[Params], tuple[str, Any]] = "PREDICATE",
    **more: Any,
) -> GuardKind:
    """Add a kind. check: may be the name of a native check of the first parameter; "PREDICATE" is a
    call of `holds`."""
    if name in KINDS:
        raise ValueError(f"guard kind {name} is there already")

    def native(params: Params) -> tuple[str, Any]:
        if check == "PREDICATE":
            return check, lambda value: holds(value, params)
        return (check, params[0]) if isinstance(check, str) else check(params)

    KINDS[name] = GuardKind(name, holds, native, expected, got, **more)
    return KINDS[name]


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


def _show_object(params: Params) -> str:
    found = params[0]()
    if found is None:
        return "an object that is gone"
    text = shown(found)
    return f"the {text}" if text.endswith(" object") else f"the object {text}"


def _show_class(value: Any, params: Params) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _identity_check(params: Params) -> tuple[str, Any]:
    reference: Reference = params[0]
    return ("IS", reference()) if reference.weak is None else ("WEAK_IS", reference.weak)


def _is_referent(value: Any, params: Params) -> bool:
    return params[0]() is value and (value is not None or params[0].weak is None)


for _name in ("ID_MATCH", "FUNCTION_MATCH", "WEAKREF_MATCH"):
    register(
        _name,
        _is_referent,
        expected=_show_object,
        got=lambda value, params: f"another object, {shown(value)}",
        check=_identity_check,
        cost=0,
        prepare=lambda params: (Reference(params[0]),),
    )

register(
    "NONE_MATCH",
    lambda value, params: value is None,
    expected=lambda params: "None",
    check=lambda params: ("IS", None),
    cost=0,
)

_THE_BOOL: dict[str, Any] = {
    "holds": lambda value, params: value is params[0],
    "check": "IS",
    "cost": 0,
    "prepare": lambda params: (_the_bool(params[0]),),
}
register("BOOL_MATCH", **_THE_BOOL)
register(
    "MODULE_TRAINING",
    expected=lambda params: f"training={params[0]}",
    got=lambda value, params: f"training={shown(value)}",
    step=lambda source: InstanceAttr(source, "training"),
    **_THE_BOOL,
)

register(
    "TYPE_MATCH",
    lambda value, params: type(value) is params[0],
    expected=lambda params: f"{params[0].__module__}.{params[0].__qualname__}",
    got=_show_class,
    check="TYPE_IS",
    cost=0,
)

CONSTANT_MATCH = register(
    "CONSTANT_MATCH",
    lambda value, params: same(params[0], value),
    check="SAME",
    prepare=lambda params: (_a_constant(params[0]),),
)


def _items_of(value: Any) -> int:
    """How many items a container holds, whatever a `__len__` of its own says."""
    bases = (tuple, list, dict, set, frozenset, collections.deque)
    base = next((base for base in bases if isinstance(value, base)), None)
    return len(value) if base is None else base.__len__(value)


def _length(name: str, cls: type | None) -> None:
    owner = "length" if cls is None else f"{cls.__name__} of length"
    register(
        name,
        lambda value, params: (cls is None or type(value) is cls) and _items_of(value) == params[0],
        expected=lambda params: f"{owner} {params[0]}",
        got=lambda value, params: f"{_show_class(value, params)} of length {_items_of(value)}",
        check=name,
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
    return "PREDICATE", lambda value: _keys_hold(value, params)


def _show_keys(value: Any, params: Params) -> str:
    return f"keys {shown(keys_of(value))}" if isinstance(value, dict) else shown(value)


register(
    "DICT_KEYS",
    _keys_hold,
    expected=lambda params: f"keys {shown(params[0])}",
    got=_show_keys,
    check=_keys_check,
    cost=2,
    prepare=lambda params: (tuple(params[0]), params[1] if len(params) > 1 else True),
)


def _presence(
    names: tuple[str, str],
    has: Callable[[Any, Any], bool | None],
    expected: tuple[str, str],
    got: Callable[[Any, Params], str] | None = None,
    checks: tuple[str, str] = ("PREDICATE", "PREDICATE"),
    cost: int = 1,
) -> None:
    """Two kinds: a value has something, or lacks it; `has`: None of what could do neither."""

    def add(name: str, wanted: bool, text: str, check: str) -> None:
        instead = f"with{'out' if wanted else ''} it"
        register(
            name,
            lambda value, params: has(value, params[0]) is wanted,
            expected=lambda params: text.format(params[0], shown=shown(params[0])),
            got=got or (lambda value, params: f"{shown(value)} {instead}"),
            check=check,
            cost=cost,
        )

    for row in zip(names, (True, False), expected, checks):
        add(*row)


def _in_set(value: Any, item: Any) -> bool | None:
    if not isinstance(value, set | frozenset):
        return None
    return bool(_base_of_set(value).__contains__(value, item))


_presence(
    ("DICT_CONTAINS", "DICT_NOT_CONTAINS"),
    lambda value, key: dict.__contains__(value, key) if isinstance(value, dict) else None,
    ("a dict with key {shown}", "a dict without key {shown}"),
    _show_keys,
    ("DICT_HAS", "DICT_LACKS"),
)
_presence(
    ("SET_CONTAINS", "SET_NOT_CONTAINS"),
    _in_set,
    ("a set with {shown}", "a set without {shown}"),
    lambda value, params: shown(value),
    cost=3,
)


def _iterates_alike(value: Any, params: Params) -> bool:
    if not isinstance(value, set | frozenset):
        return False
    return same((*_base_of_set(value).__iter__(value),), (*params[0],))


def _base_of_set(value: Any) -> Any:
    return set if isinstance(value, set) else frozenset  # not what a subclass makes of it


def _tables_alike(value: Any, params: Params) -> bool:
    # the native module is not needed to make and print guards
    from flambeau_capture._native import same_set_table

    return same_set_table(params[0], value)


#: of a set: the order of its items; and all that the order after a change depends on
register(
    "SET_ORDER",
    _iterates_alike,
    expected=lambda params: f"a set in the order {shown((*params[0],))}",
    got=lambda value, params: f"the order {shown((*_base_of_set(value).__iter__(value),))}",
    cost=3,
)
register(
    "SET_TABLE",
    _tables_alike,
    expected=lambda params: f"a set with the hash table of {shown((*params[0],))}",
    got=lambda value, params: "another hash table",
    cost=3,
)

_presence(
    ("HASATTR", "NOT_HASATTR"),
    hasattr,
    ("an attribute {}", "no attribute {}"),
    checks=("HAS_ATTR", "LACKS_ATTR"),
    cost=2,
)
_presence(
    ("CLASS_HAS", "CLASS_LACKS"),
    lambda value, name: name in vars(value) if isinstance(value, type) else None,
    ("a class with {} of its own", "a class without {} of its own"),
    checks=("CLASS_HAS", "CLASS_LACKS"),
)

#: that the value could be read is all: no check of its own (see `guards.tree`)
EXISTS = register("EXISTS", lambda value, params: True, expected=lambda params: "something", cost=0)


def _instance_lacks(value: Any, params: Params) -> bool:
    try:
        attributes = instance_dict(value)
    except Exception:  # no dict of its own: nothing to hold the name
        return True
    return params[0] not in attributes


register(
    "NOT_IN_INSTANCE_DICT",
    _instance_lacks,
    expected=lambda params: f"no {params[0]} in the instance's __dict__",
    got=lambda value, params: f"{params[0]} = {shown(instance_dict(value)[params[0]])}",
    check="INSTANCE_LACKS",
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


def _changed_special(python_class: type, params: Params) -> str | None:
    return next((row[0] for row in params[0] if not _entry_unchanged(python_class, row)), None)


def _entry_unchanged(python_class: type, row: Entry) -> bool:
    now = entry_of(python_class, row[0])
    return len(now) == len(row) and all(one is other for one, other in zip(now[1:], row[1:]))


def _entry_holds(value: Any, params: Params) -> bool:
    return isinstance(value, type) and _changed_special(value, params) is None


register(
    "CLASS_SPECIALS",
    _entry_holds,
    expected=lambda params: "the special methods of before",
    got=lambda value, params: f"another {_changed_special(value, params)}",
    check="TYPE_METHODS",
    cost=2,
    prepare=lambda params: (tuple(entry_of(params[0], name) for name in SPECIAL_NAMES),),
)


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
CLASS_ENTRY = register("CLASS_ENTRY", _entry_holds, _shown_entry, _got_entry, "TYPE_METHODS")

register(
    "SUBCLASS",
    lambda value, params: issubclass(value, params[0]) is params[1],
    expected=lambda params: f"{'a' if params[1] else 'no'} subclass of {shown(params[0])}",
    cost=3,
)

#: what a function without arguments answers: the state of the process or the thread
ANSWER = register(
    "ANSWER",
    lambda value, params: same(params[0], value()),
    got=lambda value, params: shown(value()),
    cost=3,
    prepare=lambda params: (_a_constant(params[0]),),
)

CALL = register(
    "CALL",
    lambda value, params: bool(params[0](value)),
    expected=lambda params: str(params[1]) if len(params) > 1 else shown(params[0]),
    check=lambda params: ("PREDICATE", params[0]),
    cost=4,
)


def _the_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"a bool is wanted, not {shown(value)}")
    return value


def _a_constant(value: Any) -> Any:
    if isinstance(value, list | dict | set | bytearray):
        raise TypeError(f"a guard cannot hold {type(value).__name__} as a constant: it may change")
    return value
