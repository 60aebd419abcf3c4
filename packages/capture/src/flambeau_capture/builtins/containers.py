"""Container constructors and copies: list, tuple, dict, set, slice, deque; `copy` and `deepcopy`.

In: values. Out: new containers. Invariant: a new container shares items, never storage, with what
it was made from.
"""

from __future__ import annotations

import collections
import collections.abc
import copy
import types
from collections.abc import Iterator
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.classes.construction import refuse_del
from flambeau_capture.builtins.introspection import python_method
from flambeau_capture.identity import compares_itself
from flambeau_capture.polyfills import calling
from flambeau_capture.values.argument_errors import check_call
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, suppressed, unpack
from flambeau_capture.values.constant import Constant, evaluate, is_none, nameless
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import DequeValue, ListValue
from flambeau_capture.values.containers.sequences import SliceValue, TupleValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.call_rules import answers, handles
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attribute_dicts import InstanceDict, ProxyValue, ReadOnly
from flambeau_capture.values.objects.attributes import assume_entry, find_in_class, layout_of
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.nn_modules import ModuleValue
from flambeau_capture.values.objects.opaque import FrozenValue, PyModuleValue
from flambeau_capture.values.registry import itself
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue


def _items(tx: Tracer, kind: type, args: Args, kwargs: Kwargs) -> list[Value]:
    name = kind.__name__
    if kwargs:
        tx.raise_error(TypeError, f"{name}() takes no keyword arguments")
    if len(args) > 1:
        tx.raise_error(TypeError, f"{name} expected at most 1 argument, got {len(args)}")
    return unpack(tx, args[0], hint=kind in (list, tuple)) if args else []


answers(
    {
        list: lambda tx, args, kwargs: ListValue(_items(tx, list, args, kwargs)),
        set: lambda tx, args, kwargs: _set_of(tx, set, args, kwargs),
    }
)


@handles(tuple)
def _tuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(_items(tx, tuple, args, kwargs))


@handles(frozenset)
def _frozenset(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and args[0].cls is frozenset and isinstance(args[0], SetValue):
        return args[0]
    return _set_of(tx, frozenset, args, kwargs)


def _set_of(tx: Tracer, kind: type, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 1:
        _items(tx, kind, args, kwargs)
    made = SetValue([], kind, tx=tx)
    return made.filled(tx, args[0]) if args else made


def _dict_of(kind: type) -> None:
    @handles(kind)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue(python_class=kind, tx=tx)
        made.call_method(tx, "__init__", args, kwargs)
        return made

    if kind is collections.defaultdict:
        return

    @handles(kind.fromkeys)  # type: ignore[attr-defined]
    def from_keys(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        keys, value, *_ = [*args, *kwargs.values(), Constant(None)]
        return DictValue([(key, value) for key in unpack(tx, keys)], python_class=kind, tx=tx)


for _kind in (dict, collections.OrderedDict, collections.defaultdict):
    _dict_of(_kind)


@handles(collections.deque)
def _deque(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DequeValue([])
    made.call_method(tx, "__init__", args, kwargs)
    return made


@handles(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    none = Constant(None)
    start, stop, step, *_ = (none, *args, none) if len(args) == 1 else (*args, none)
    return SliceValue(start, stop, step)


_SHARED = (Constant, ClassValue, FunctionValue, BuiltinValue, PyModuleValue, FrozenValue)
#: methods that read the items of a list or a dict, and that put them into the copy
_READ_BY_COPYING = ("__iter__", "__len__", "items", "append", "extend", "__setitem__")
_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")


@handles(copy.copy)
def _copy(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if compares_itself(value.cls):  # which is looked up in the tables of `copy`
        value.unknown("copy.copy")
    if isinstance(value, (*_SHARED, SliceValue)) or value.cls is tuple:
        return value
    if isinstance(value, TupleValue):
        return _tuple_like(value, "__copy__", value.parts())
    if isinstance(value, InstanceDict):
        return DictValue(value.entries(tx), tx=tx)
    if isinstance(value, ListValue | DictValue | SetValue):
        return value.call_method(tx, "copy", [], {})
    if isinstance(value, ObjectValue):
        return _instance(tx, value, lambda part: part)
    raise Break("FB0005", f"copy.copy of {value.describe()}")


@handles(copy.deepcopy)
def _deepcopy(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    memo = args[1] if len(args) > 1 else kwargs.get("memo")
    if memo is None or is_none(memo):
        return deep(tx, args[0], {})
    if not isinstance(memo, Memo):
        raise Break("FB0005", "copy.deepcopy with a memo of the program's own")
    return deep(tx, args[0], memo.known)


class Memo(DictValue):
    """The memo that a `__deepcopy__` of the program is given, to be handed on."""

    def __init__(self, known: dict[int, Value]) -> None:
        super().__init__()
        self.known = known

    get_item, set_item = Value.get_item, Value.set_item

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        self.unknown(f"method {name!r}")


def deep(tx: Tracer, value: Value, memo: dict[int, Value]) -> Value:
    """A copy of all that can change."""
    known = memo.get(id(value))
    if known is not None:
        return known
    if compares_itself(value.cls):
        value.unknown("copy.deepcopy")
    if isinstance(value, _SHARED):
        return value

    def part(inner: Value) -> Value:
        return deep(tx, inner, memo)

    made: Value
    if isinstance(value, DequeValue):
        made = DequeValue([part(item) for item in value.parts()], value.maxlen)
    elif isinstance(value, ListValue):
        made = ListValue([])
        memo[id(value)] = made
        made.replace(tx, [part(item) for item in value.parts()])
    elif isinstance(value, TupleValue):
        copies = [part(item) for item in value.parts()]
        same = all(copied is item for copied, item in zip(copies, value.parts()))
        if same and value.cls is tuple:
            return value  # nothing in it can change
        made = _tuple_like(value, "__deepcopy__", copies)
    elif isinstance(value, DictValue):
        made = DictValue(python_class=value.cls, tx=tx, factory=value.factory)
        memo[id(value)] = made
        for key, item in value.entries():
            made.store(tx, part(key), part(item))
    elif isinstance(value, InstanceDict):
        made = DictValue([(key, part(item)) for key, item in value.entries(tx)], tx=tx)
    elif isinstance(value, SetValue):
        made = SetValue([part(item) for item in value.parts()], value.cls, tx=tx)
    elif isinstance(value, TensorValue):
        made = _tensor(tx, value)
    elif isinstance(value, SliceValue):
        start, stop, step = map(part, value.bounds)
        made = SliceValue(start, stop, step)
    elif isinstance(value, ObjectValue):
        return _instance(tx, value, part, memo)
    else:
        raise Break("FB0005", f"copy.deepcopy of {value.describe()}")
    memo[id(value)] = made
    return made


def _tuple_like(value: TupleValue, own: str, parts: list[Value]) -> Value:
    """Another of the class, which is made from its items where it does not say otherwise."""
    for name in (own, "__getnewargs_ex__", *_HOOKS):
        if python_method(value.cls, name) is not None:
            raise Break("FB0005", f"copy of {value.describe()}, which has its own {name}")
    maker = find_in_class(value.cls, "__new__")
    if not hasattr(value.cls, "_make") and (maker is None or maker[0] is not tuple):
        raise Break("FB0005", f"copy of {value.describe()}")
    return TupleValue(parts, value.cls)


def _tensor(tx: Tracer, value: TensorValue) -> Value:
    """A copy of a plain tensor that fills its memory and has no gradient to be carried over."""
    fake = value.fake
    dense = sum((size - 1) * step for size, step in zip(fake.shape, fake.stride())) + 1
    if value.cls is not torch.Tensor or fake.requires_grad or dense != fake.numel():
        raise Break("FB0005", f"copy.deepcopy of {value.describe()}")
    return graph_call(tx, "call_method", "clone", [value], {})


def _instance(
    tx: Tracer, value: ObjectValue, part: Any, memo: dict[int, Value] | None = None
) -> Value:
    own = "__copy__" if memo is None else "__deepcopy__"
    for name in (own, "__new__", *_HOOKS, "__getnewargs__", "__getnewargs_ex__"):
        assume_entry(tx, value.cls, name)
    hook = find_in_class(value.cls, own)
    kept = memo is not None and value.instance_get(tx, own) is not None
    if kept or python_method(value.cls, own) is not None:
        if memo is None:  # looked up in the class, not in the object
            copied = tx.call(tx.get_attr(tx.wrap_new(value.cls), own), [value], {})
        else:
            copied = tx.call(tx.get_attr(value, own), [Memo(memo)], {})
        if memo is not None and copied is not value:
            memo[id(value)] = copied
        return copied
    asking = ("__getattribute__", "__getattr__") if hook is None else ("__getattribute__",)
    asks = any(value.special(tx, name) for name in asking)
    if type(value.cls) is not type and find_in_class(type(value.cls), "__getattr__") is not None:
        raise Break("FB0005", f"copy of {value.describe()}, whose metaclass is asked for hooks")
    hooks = any(python_method(value.cls, name) for name in _HOOKS)
    if asks and (hooks or value.payload is not None or [*_slots(tx, value.cls)]):
        raise Break("FB0005", f"copy of {value.describe()}, which is asked for hooks")
    if value.payload is None and hooks:
        return _by_hooks(tx, value, part, memo)
    for name in (own, *_HOOKS):
        found = find_in_class(value.cls, name)
        if found is None or found[0] is object:
            continue
        if isinstance(found[1], types.FunctionType):
            raise Break("FB0005", f"copy of {value.describe()}, which has its own {name}")
        if value.special(tx, "__new__") or value.special(tx, "__init__"):  # by which it is made
            raise Break("FB0005", f"copy of {value.describe()}, by {name} of a built-in class")
    if value.special(tx, "__new__"):
        raise Break("FB0005", f"copy of {value.describe()}, which its own __new__ makes")
    asked = [name for name in _READ_BY_COPYING if value.special(tx, name)]
    if asked and value.payload is not None:
        raise Break("FB0005", f"copy of {value.describe()}, by its own {asked[0]}")
    slots = [*_slots(tx, value.cls)]
    by_state = bool(slots) and (value.payload is not None or value.special(tx, "__setattr__"))
    if isinstance(value, ModuleValue | ExceptionValue) or by_state:
        raise Break("FB0005", f"copy of {value.describe()}")
    if value.payload is None and layout_of(value.cls) not in (object, types.SimpleNamespace):
        raise Break("FB0005", f"copy of {value.describe()}, whose state is in C")
    payload = None if value.payload is None else part(value.payload)
    fixed = isinstance(payload, TupleValue | Constant)
    if payload is value.payload and payload is not None and not fixed:
        payload = payload.call_method(tx, "copy", [], {})
    refuse_del(value.cls)
    made = ObjectValue(value.cls, payload=payload)
    stateless = (types.SimpleNamespace, collections.defaultdict)  # by `__reduce__` of their own
    if hook is None and layout_of(value.cls) not in stateless:
        kind = tx.wrap(value.cls, itself(value.cls))
        assert isinstance(kind, ClassValue)
        kind.keep_slot_names(tx)
    looked_up = _LOOKED_UP[memo is not None] if asks else ([], [])
    _ask(tx, value, looked_up[0])
    if memo is not None:
        memo[id(value)] = made
    entries = [*value.own_entries(tx)]
    copies = [(key, part(item)) for key, item in entries if key not in slots]
    _ask(tx, made, looked_up[1] if entries else [])
    for key, item in copies:
        made.write(tx, key, item)
    for key in slots:
        filled = value.read_slot(tx, key)
        if filled is not None:
            made.write(tx, key, part(filled))
    return made


def _names_looked_up(copies: Any) -> tuple[list[str], list[str]]:
    """The names that copying an object with attributes looks up on it, and on the copy."""
    found: tuple[list[str], list[str]] = ([], [])

    class Noting:
        def __getattribute__(self, name: str) -> Any:
            found[self is not given].append(name)
            return object.__getattribute__(self, name)

    given = Noting()
    given.__dict__["attribute"] = None
    found[0].clear()
    copies(given)
    return found


_LOOKED_UP = _names_looked_up(copy.copy), _names_looked_up(copy.deepcopy)


def _ask(tx: Tracer, value: ObjectValue, names: list[str]) -> None:
    """Let an object's own look-up answer for the hooks of a copy: only as `object` has them."""
    for name in names:
        found: Value | None = None
        with suppressed(AttributeError):
            found = tx.get_attr(value, name)
        if name == "__dict__":
            plain = isinstance(found, InstanceDict) and found.owner is value
        elif hasattr(object, name):
            own = isinstance(found, BoundMethod) and found.receiver is value
            plain = own and isinstance(found, BoundMethod) and found.name == name
        else:
            plain = found is None
        if not plain:
            raise Break("FB0005", f"copy of {value.describe()}, whose {name} is {found}")


def _slots(tx: Tracer, kind: type) -> Iterator[str]:
    """The slots of a class and its bases, by the names that they have there."""
    for owner in kind.__mro__:
        named = vars(owner).get("__slots__", ())
        for name in [named] if isinstance(named, str) else [*named]:
            private = name.startswith("__") and not name.endswith("__")
            key = f"_{owner.__name__.lstrip('_')}{name}" if private else name
            if key in ("__dict__", "__weakref__"):
                continue
            assume_entry(tx, kind, key)
            found = find_in_class(kind, key)
            if found is None or not isinstance(found[1], types.MemberDescriptorType):
                raise Break("FB0005", f"copy by the slot {key!r} of {kind.__name__}, now another")
            if key in getattr(tx.heap.find(found[0]), "written", ()):
                raise Break("FB0019", f"the slot {key!r} of {kind.__name__} is another by now")
            yield key


def _by_hooks(tx: Tracer, value: ObjectValue, part: Any, memo: dict[int, Value] | None) -> Value:
    """What is made of what the object's own `__reduce__`, or the like, answers."""
    if isinstance(value, ModuleValue | ExceptionValue):
        raise Break("FB0005", f"copy of {value.describe()}")
    reduced: Value | None = None
    if python_method(value.cls, "__reduce_ex__") is not None:
        reduced = tx.call(tx.get_attr(value, "__reduce_ex__"), [Constant(4)], {})
    elif python_method(value.cls, "__reduce__") is not None:
        reduced = tx.call(tx.get_attr(value, "__reduce__"), [], {})
    if reduced is None:
        known = ("__slots__", "__getnewargs__", "__getnewargs_ex__", "__getstate__")
        there = [name for name in known if find_in_class(value.cls, name) is not None]
        if there != ["__getstate__"] or python_method(value.cls, "__getstate__") is None:
            raise Break("FB0005", f"copy of {value.describe()}, by its own hooks")
        new = tx.get_attr(tx.wrap_new(value.cls), "__new__")
        state = tx.call(tx.get_attr(value, "__getstate__"), [], {})
        found: list[Value] = [new, TupleValue([tx.wrap_new(value.cls)]), state]
    elif reduced.cls is str:
        return value
    elif isinstance(reduced, TupleValue) and 2 <= len(reduced.parts()) <= 3:
        found = reduced.parts()
    else:
        raise Break("FB0005", f"copy of {value.describe()}, whose __reduce__ answers {reduced}")
    made = tx.call(found[0], [part(arg) for arg in unpack(tx, found[1])], {})
    if memo is not None:
        memo[id(value)] = made
    state = found[2] if len(found) > 2 else Constant(None)
    return tx.call_python(calling.restored, [made, part(state)])


@handles(types.MappingProxyType)
def _proxy_of(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    check_call(tx, types.MappingProxyType, args, kwargs)
    (inner,) = (*args, *kwargs.values())
    if isinstance(inner, ReadOnly):
        raise Break("FB0009", "a mapping proxy of a mapping proxy")
    sequence = issubclass(inner.cls, list | tuple)
    if sequence or find_in_class(inner.cls, "__getitem__") is None:
        evaluate(tx, types.MappingProxyType, nameless(inner))
    if not issubclass(inner.cls, collections.abc.Mapping):
        raise Break("FB0009", f"a mapping proxy of {inner.describe()}")
    return ProxyValue(inner)
