"""Dictionaries and their methods: dict, OrderedDict and defaultdict.

In: dicts of the program or new ones. Out: `DictValue`; `pairs_of`, what one can be updated with.
Invariant: entries that the program does not touch are wrapped, and guarded, when they are read;
what a method raises is what Python's own raises.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from flambeau_capture.source import Attr, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    UserError,
    Value,
    suppressed,
    unpack,
)
from flambeau_capture.values.constant import (
    Constant,
    constant_of,
    evaluate,
    is_none,
    nameless,
    refuse,
)
from flambeau_capture.values.containers.dict_views import DictView
from flambeau_capture.values.containers.hashable_keys import (
    dict_key,
    is_among,
    raise_key_error,
    raise_ordered_key_error,
)
from flambeau_capture.values.containers.sequences import Pending, TupleValue, tx_equal
from flambeau_capture.values.functions.methods import BuiltinKind, Handler
from flambeau_capture.values.iterators.builtin import KeysIterator
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue


def default_of(args: Args, kwargs: Kwargs) -> Value:
    """The second argument of `get` and its like."""
    return args[1] if len(args) > 1 else kwargs.get("default", Constant(None))


class MappingValue(BuiltinKind):
    """A mapping. `lookup` is what a kind has at least; `whole`, if it can be read as a dict."""

    cls: type = dict

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        raise NotImplementedError

    def store(self, tx: Tracer, key: Value, value: Value) -> None:
        self.unknown("assignment to a subscript")

    def remove(self, tx: Tracer, key: Value) -> Value | None:
        self.unknown("deletion of a subscript")

    def whole(self, tx: Tracer) -> Value:
        self.unknown("iteration")

    def truth(self, tx: Tracer) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Tracer) -> int:
        return self.whole(tx).length(tx)

    def contains(self, tx: Tracer, item: Value) -> bool:
        return self.lookup(tx, item) is not None

    def iterate(self, tx: Tracer) -> IteratorValue:
        return self.whole(tx).iterate(tx)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        found = self.lookup(tx, key)
        if found is None:
            raise_key_error(tx, key)
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        self.store(tx, key, value)

    def del_item(self, tx: Tracer, key: Value) -> None:
        if self.remove(tx, key) is None:
            raise_key_error(tx, key)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in _OF_WHOLE:
            return self.whole(tx).call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)


class DictValue(MappingValue):
    """dict, OrderedDict and defaultdict."""

    cls: type

    def __init__(
        self,
        entries: Iterable[tuple[Value, Value | Pending]] = (),
        python_class: type = dict,
        source: Source | None = None,
        tx: Any = None,
        factory: Value | None = None,
    ) -> None:
        self.cls = python_class
        self._tx = tx
        self.source = source
        self.factory = factory
        self.attributes: dict[str, Value] = {}  # of an OrderedDict, which has a `__dict__`
        self.real_attributes: dict[str, Any] = {}
        self._entries: dict[Hashable, tuple[Value, Value | Pending]] = {}
        for key, value in entries:  # the first of equal keys stays, with the last value
            hashed = dict_key(tx, key)
            self._entries[hashed] = (self._entries.get(hashed, (key,))[0], value)

    def describe(self) -> str:
        return f"{self.cls.__name__} of {len(self._entries)}"

    def as_python(self) -> Any:
        items = {key.as_python(): value.as_python() for key, value in self.entries()}
        if self.cls is dict:
            return items
        if self.cls is collections.OrderedDict:
            return collections.OrderedDict(items)
        if self.cls is collections.defaultdict:
            factory = None if self.factory is None else self.factory.as_python()
            return collections.defaultdict(factory, items)
        raise NotConcrete(self.describe())

    def graph_argument(self) -> Any:
        return {constant_of(key): value.graph_argument() for key, value in self.entries()}

    def parts(self) -> list[Value]:
        return self.values()

    def holds(self) -> Iterable[Value]:
        return [value for _, value in self._entries.values() if not isinstance(value, Pending)]

    def keys(self) -> list[Value]:
        return [key for key, _ in self._entries.values()]

    def values(self) -> list[Value]:
        return [value for _, value in self.entries()]

    def entries(self) -> list[tuple[Value, Value]]:
        return [(key, self._read(hashed)) for hashed, (key, _) in list(self._entries.items())]

    def plain(self) -> DictValue:
        """A new dict of the same entries; no key is hashed again."""
        made = DictValue(tx=self._tx)
        made._entries = {
            hashed: (key, self._read(hashed)) for hashed, (key, _) in self._entries.items()
        }
        return made

    def _read(self, hashed: Hashable) -> Value:
        key, value = self._entries[hashed]
        if isinstance(value, Pending):
            value = self._tx.wrap(value.real, value.source)
            self._entries[hashed] = (key, value)
        return value

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        place = self._place(tx, key)
        return None if place is None else self._read(*place)

    def _place(self, tx: Tracer, key: Value) -> tuple[Hashable] | None:
        """Where a key is, if it is there; it is hashed once."""
        if isinstance(key, SymbolValue) and not is_among(tx, key, self._entries):
            return None
        hashed = dict_key(tx, key)
        return (hashed,) if hashed in self._entries else None

    def store(self, tx: Tracer, key: Value, value: Value) -> None:
        hashed = dict_key(tx, key)
        old = self._entries.get(hashed)
        if old is not None and old[1] is value:
            return  # `module.buffer += 1` assigns the tensor that it has written to
        tx.heap.changed(self)
        self._entries[hashed] = (old[0] if old is not None else key, value)

    def remove(self, tx: Tracer, key: Value) -> Value | None:
        place = self._place(tx, key)
        if place is None:
            return None
        found = self._read(*place)
        tx.heap.changed(self)
        del self._entries[place[0]]
        return found

    def clear(self, tx: Tracer) -> None:
        tx.heap.changed(self)
        self._entries.clear()

    def move(self, tx: Tracer, key: Value, last: bool) -> None:
        """OrderedDict.move_to_end."""
        tx.heap.changed(self)
        entry = self._entries.pop(dict_key(tx, key))
        if last:
            self._entries[dict_key(tx, key)] = entry
        else:
            self._entries = {dict_key(tx, key): entry, **self._entries}

    def length(self, tx: Tracer) -> int:
        return len(self._entries)

    def contains(self, tx: Tracer, item: Value) -> bool:
        return is_among(tx, item, self._entries)

    def iterate(self, tx: Tracer) -> IteratorValue:
        return KeysIterator(self, self.keys())

    def iterate_backwards(self) -> IteratorValue:
        return KeysIterator(self, self.keys()[::-1], backwards=True)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        found = self.lookup(tx, key)
        if found is None and self.factory is not None and not is_none(self.factory):
            found = tx.call(self.factory, [], {})
            self.store(tx, key, found)
        return super().get_item(tx, key) if found is None else found

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.factory or Constant(None)
        if name in self.attributes:
            return self.attributes[name]
        if name in self.real_attributes and self.source is not None:
            return tx.wrap(self.real_attributes[name], Attr(self.source, name))
        if not hasattr(self.cls, name) and self.cls is collections.OrderedDict:
            tx.guard(self.source, "NOT_HASATTR", name)
        return super().get_attr(tx, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self.cls is not collections.OrderedDict or self.source is not None:
            self.unknown(f"assignment to attribute {name!r}")
        tx.heap.changed()
        self.attributes[name] = value

    def whole(self, tx: Tracer) -> DictValue:
        return self

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return BuiltinKind.call_method(self, tx, name, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            if self.cls is collections.defaultdict:
                factory = self.factory or Constant(None)
                writer.call(collections.defaultdict, [factory, self.plain()])
            elif self.cls is not dict:
                given = [self.plain()]
                named = [(Constant(name), value) for name, value in self.attributes.items()]
                if named:
                    writer.call(_ordered_with, [*given, DictValue(named, tx=self._tx)])
                else:
                    writer.call(self.cls, given)
            else:
                for key, value in self.entries():
                    writer.load(key)
                    writer.load(value)
                writer.build_map(len(self._entries))

    def replay(self, writer: Any) -> None:
        """Write the entries back: `found.clear(); found.update(entries)`."""
        writer.do(_refill, [self, self.plain()])


def named_dict(values: Mapping[str, Value], tx: Any = None) -> DictValue:
    """A new dict of values by name."""
    return DictValue([(Constant(name), value) for name, value in values.items()], tx=tx)


def _ordered_with(entries: dict[Any, Any], attributes: dict[str, Any]) -> Any:
    made: Any = collections.OrderedDict(entries)
    vars(made).update(attributes)
    return made


def _refill(target: Any, entries: dict[Any, Any]) -> None:
    """Through the built-in class's own methods: those of a subclass have run under capture."""
    own_class(target).clear(target)
    fill_dict(target, entries)


def fill_dict(target: Any, entries: dict[Any, Any]) -> None:
    kind = own_class(target)
    for key, value in entries.items():
        kind.__setitem__(target, key, value)


def own_class(target: Any) -> Any:
    """By the type: `isinstance` would run the object's own code."""
    kind = collections.OrderedDict
    return kind if issubclass(type(target), kind) else dict


def _pair(tx: Tracer, index: int, pair: Value, ordered: bool) -> list[Value]:
    """Two values; what is raised of others has the words of OrderedDict, or those of dict."""
    element = f"dictionary update sequence element #{index}"
    refused = isinstance(pair, Constant) and find_in_class(pair.cls, "__iter__") is None
    parts: list[Value] = []
    try:
        if ordered or not refused:
            parts = unpack(tx, pair)
    except UserError as error:
        if ordered or not issubclass(error.value.cls, TypeError):
            raise
        refused = True
    if refused and not ordered:
        before: list[Any] = [(0, 0)] * index
        evaluate(tx, lambda: dict([*before, nameless(pair)]))
    if len(parts) == 2:
        return parts
    if not ordered:
        tx.raise_error(ValueError, f"{element} has length {len(parts)}; 2 is required")
    had = "1 value" if parts else "0 values"
    few = f"need more than {had} to unpack"
    tx.raise_error(ValueError, "too many values to unpack (expected 2)" if parts[2:] else few)


def pairs_of(tx: Tracer, given: Value, ordered: bool = False) -> Iterator[tuple[Value, Value]]:
    """Key and value pairs of a mapping or of an iterable of pairs, read one by one.

    `ordered`: for OrderedDict, which calls `keys` and `__getitem__` of every subclass of dict; a
    dict calls them where a subclass does not iterate as it does.
    """
    payload = getattr(given, "payload", None)
    if isinstance(payload, DictValue):
        own = any(given.special(tx, name) for name in ("keys", "__getitem__"))
        if not own or (find_in_class(given.cls, "__iter__") == _PLAIN_ITER and not ordered):
            given = payload
    if isinstance(given, DictValue):
        yield from given.entries()
        return
    find_keys = keys_of(tx, given)
    if find_keys is not None:
        keys = unpack(tx, tx.call(find_keys, [], {}))
        yield from ((key, given.get_item(tx, key)) for key in keys)
        return
    for index, pair in enumerate(unpack(tx, given)):
        key, value = _pair(tx, index, pair, ordered)
        yield key, value


def keys_of(tx: Tracer, given: Value) -> Value | None:
    """What makes an object a mapping: its attribute, by whichever way it is found."""
    found_by_object = hasattr(given, "payload")  # a class, or an object of one of the program's
    if not found_by_object and find_in_class(given.cls, "keys") is None:
        return None
    with suppressed(AttributeError):
        return tx.get_attr(given, "keys")
    return None


_PLAIN_ITER = (dict, dict.__iter__)


def _pop(self: MappingValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    looked_at = isinstance(args[0], Constant) or self.cls is collections.OrderedDict
    empty = not looked_at and not self.length(tx)  # then no key is hashed
    found = None if empty else self.remove(tx, args[0])
    if found is not None:
        return found
    if len(args) > 1 or "default" in kwargs:
        return default_of(args, kwargs)
    if self.cls is collections.OrderedDict:
        raise_ordered_key_error(tx, args[0])
    raise_key_error(tx, args[0])


def _popitem(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not self.truth(tx):
        ordered = self.cls is collections.OrderedDict
        tx.raise_error(KeyError, ("" if ordered else "popitem(): ") + "dictionary is empty")
    last = args[0] if args else kwargs.get("last")
    entries = self.entries()
    key, value = entries[-1 if last is None or last.truth(tx) else 0]
    self.remove(tx, key)
    return TupleValue([key, value])


def _setdefault(self: MappingValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = self.lookup(tx, args[0])
    if found is None:
        found = default_of(args, kwargs)
        self.store(tx, args[0], found)
    return found


def _update(self: MappingValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    for given in args:
        for key, value in pairs_of(tx, given, ordered=self.cls is collections.OrderedDict):
            self.store(tx, key, value)
    for name, value in kwargs.items():
        self.store(tx, Constant(name), value)


def _ior(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _update(self, tx, args, {})
    return self


def _init(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    if self.cls is collections.defaultdict and args:
        if not is_none(args[0]) and find_in_class(args[0].cls, "__call__") is None:
            refuse(tx, collections.defaultdict, args[0])
        self.factory, args = args[0], args[1:]
    _update(self, tx, args, kwargs)


def _copy(self: DictValue, tx: Tracer, args: Args = (), kwargs: Kwargs | None = None) -> DictValue:
    return DictValue(self.entries(), self.cls, tx=tx, factory=self.factory)


def _or(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _merged(self, tx, self, args[0])


def _ror(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if self.cls is not dict and issubclass(args[0].cls, self.cls):
        return args[0].call_method(tx, "__or__", [self], {})  # the left one's class
    return _merged(self, tx, args[0], self)


def _merged(kind: DictValue, tx: Tracer, left: Value, right: Value) -> Value:
    """A mapping of the one's class with the entries of two."""
    if not all(
        isinstance(getattr(one, "payload", None) or one, DictValue) for one in (left, right)
    ):
        return Constant(NotImplemented)
    merged = DictValue([], kind.cls, tx=tx, factory=kind.factory)
    _update(merged, tx, [left, right], {})
    return merged


def _move_to_end(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    last = args[1] if len(args) > 1 else kwargs.get("last", Constant(True))
    if not self.contains(tx, args[0]):
        raise_ordered_key_error(tx, args[0])
    self.move(tx, args[0], last.truth(tx))


def _equal(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    other = getattr(args[0], "payload", None) or args[0]
    if not isinstance(other, DictValue):
        return Constant(NotImplemented)
    if self.length(tx) != other.length(tx):
        return Constant(False)
    for key, value in self.entries():
        theirs = other.lookup(tx, key)
        if theirs is None or not tx_equal(tx, value, theirs):
            return Constant(False)
    ordered = all(issubclass(each.cls, collections.OrderedDict) for each in (self, other))
    pairs = zip(self.keys(), other.keys(), strict=True) if ordered else ()
    return Constant(all(tx_equal(tx, one, two) for one, two in pairs))


def _unequal(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    equal = tx.call(tx.get_attr(self, "__eq__"), args, kwargs)
    known = isinstance(equal, Constant) and equal.as_python() is NotImplemented
    return equal if known else Constant(not equal.truth(tx))


MappingValue.methods = {
    "get": lambda s, tx, a, k: s.lookup(tx, a[0]) or default_of(a, k),
    "pop": _pop,
    "setdefault": _setdefault,
    "update": _update,
}
_OF_DICTS: dict[str, Handler] = {
    "copy": _copy,
    "keys": lambda s, tx, a, k: DictView(s, "keys"),
    "values": lambda s, tx, a, k: DictView(s, "values"),
    "items": lambda s, tx, a, k: DictView(s, "items"),
    "__or__": _or,
    "__ror__": _ror,
    "__reversed__": lambda s, tx, a, k: s.iterate_backwards(),
    "__eq__": _equal,
    "__ne__": _unequal,
    "__repr__": lambda s, tx, a, k: Constant(repr(s.as_python())),
}
#: what other mappings answer as a dict of the same entries does
_OF_WHOLE = frozenset(_OF_DICTS)
DictValue.methods = {
    **MappingValue.methods,
    **_OF_DICTS,
    "popitem": _popitem,
    "__init__": _init,
    "__ior__": _ior,
    "clear": lambda s, tx, a, k: s.clear(tx),
    "fromkeys": lambda s, tx, a, k: tx.call(tx.get_attr(tx.wrap_new(s.cls), "fromkeys"), a, k),
    "move_to_end": _move_to_end,
}
