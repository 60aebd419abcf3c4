"""Contents of the program's containers that nothing has read.

In: a list, deque, dict or set of the program and how to read it. Out: `UnreadList`, `UnreadDeque`,
`UnreadDict`, `UnreadSet`. Invariant: what a frame reads of a container is guarded, and a write
reads nothing: it is noted, and made again on the object. A container that had another size when
code was last made is read item by item, and its size is a number as any other.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Called, Source, item_of
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue, own_class
from flambeau_capture.values.containers.hashable_keys import (
    KeyOf,
    dict_key,
    key_of,
    raise_key_error,
    set_element,
)
from flambeau_capture.values.containers.lists import DequeValue, ListValue
from flambeau_capture.values.containers.sequences import Pending, SliceValue, TupleValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.tensors.numbers.open_text import OpenText, never_equal
from flambeau_capture.values.tensors.symbolic_numbers import (
    SymbolValue,
    note_constants,
    open_numbers,
)

LARGE = 256

Items = list[Value | Pending]


class Unread(Value):
    """What the four kinds share: `read` answers the contents, once, guarded as a whole."""

    #: in Python, whatever a subclass of it defines
    base: Any
    real: Any
    source: Source
    _reader: Callable[[], Any] | None = None

    def known_from(self, tx: Tracer, real: Any, read: Callable[[], Any]) -> None:
        self.real = real
        self._reader = read
        self._size = self.base.__len__(real)
        self._varies = tx.differs(self.source, self._size) or self._size > LARGE

    def is_unread(self) -> bool:
        return self._reader is not None

    def is_read_by_item(self) -> bool:
        return self._reader is not None and self._varies

    def has_changed(self) -> bool:
        raise NotImplementedError

    def count(self, tx: Tracer) -> Value:
        return super().count(tx) if self.has_changed() else self.count_before(tx)

    def count_before(self, tx: Tracer) -> Value:
        """How many items there are, but for what the frame has changed."""
        if not self.is_read_by_item():
            return super().count(tx)
        size = len if type(self.real) is self.base else self.base.__len__
        return tx.wrap(self._size, Called(self.source, size))

    def truth(self, tx: Tracer) -> bool:
        return self.count(tx).truth(tx)

    def describe(self) -> str:
        return self.cls.__name__ if self._reader is not None else super().describe()


class UnreadList(Unread, ListValue):
    """A list of the program. `_written`: methods, where they write, and the items they write."""

    base: Any = list
    maxlen: int | None = None  # a deque's

    def __init__(self, tx: Tracer, real: Any, source: Source, read: Callable[[], Items]) -> None:
        self._held: Items = []
        self._written: list[tuple[Any, list[Value], list[Value]]] = []
        super().__init__([], source=source, tx=tx)
        self.known_from(tx, real, read)

    @property
    def _items(self) -> Items:
        if self._reader is not None:
            read, self._reader = self._reader, None
            made = self.own(read())
            for method, where, items in self._written:
                method(made, *(place.as_python() for place in where), items)
            self._held = [*made]
        return self._held

    @_items.setter
    def _items(self, items: Items) -> None:
        self._reader = None
        self._held = items

    def own(self, items: Items) -> Any:
        """The items in what has its methods."""
        return [*items]

    def has_changed(self) -> bool:
        return bool(self._written)

    def count(self, tx: Tracer) -> Value:
        if not self.is_read_by_item() or (self._written and self.maxlen is not None):
            return Constant(len(self._items))
        found = self.count_before(tx)
        added = sum(len(items) for _, _, items in self._written)
        return tx.binary("+", found, Constant(added)) if added else found

    def truth(self, tx: Tracer) -> bool:
        added = any(items for _, _, items in self._written) and self.maxlen != 0
        return (self._reader is not None and added) or super().truth(tx)

    def holds(self) -> Iterable[Value]:
        if self._reader is None:
            return super().holds()
        return [item for _, _, items in self._written for item in items]

    def write(self, tx: Tracer, method: Any, items: list[Value], *where: Value) -> None:
        """Add items without looking at what is there."""
        tx.heap.changed(self)
        if self._written and not where and self._written[-1][0] is method:
            items = [*self._written.pop()[2], *items]
        self._written.append((method, [*where], items))

    def add(self, tx: Tracer, items: list[Value]) -> None:
        if self._reader is None:
            super().add(tx, items)
        else:
            self.write(tx, list.extend, items)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if not self.is_read_by_item() or isinstance(key, SliceValue):
            return super().get_item(tx, key)
        where = self.where(tx, key)
        assert isinstance(where, int)
        added = [item for _, _, items in self._written for item in items]
        if any(method is not list.extend for method, _, _ in self._written) or (
            not -self._size <= where < self._size
        ):
            return super().get_item(tx, key)
        if where < 0 and added:
            return added[where] if where >= -len(added) else super().get_item(tx, key)
        place = item_of(self.real, self.source, where, "list" if self.base is list else "any")
        tx.guard(place, "EXISTS")
        return tx.wrap(self.real[where], place)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "insert" and self._reader is not None and self.base is list:
            place = args[0]
            if type(place) in (Constant, SymbolValue) and place.cls is int:
                spot = SliceValue(place, place, Constant(None))
                self.write(tx, list.__setitem__, [args[1]], spot)
                return Constant(None)
        return super().call_method(tx, name, args, kwargs)

    def replay(self, writer: Any) -> None:
        if self._reader is None:
            super().replay(writer)
            return
        for method, where, items in self._written:
            writer.do(method, [self, *where, TupleValue(items)])


#: what takes lists of numbers that are no sizes nor dimensions
_TAKE_ANY_NUMBERS = frozenset({"getitem", "setitem", "tensor", "as_tensor"})


def needs_lengths(tx: Tracer, name: str, values: Iterable[Value]) -> None:
    """An operator takes these lists of the program whole: of one that is as long as the program
    has made it, two lengths make graphs of their own, and a third ends the graph here. Sizes and
    dimensions are no such lists: there are as many as a tensor has."""
    for value in values:
        if isinstance(value, UnreadList) and value.is_unread():
            numbers = all(isinstance(item, int) for item in value.real)
            if numbers and name not in _TAKE_ANY_NUMBERS:
                continue
            place, size = Called(value.source, len), len(value.real)
            before = tx.needed_by(name, place, size)
            if before is not None:
                what = f"a {value.cls.__name__} of the program"
                raise Break("FB0028", f"{name} needs {what}, which held {before} and holds {size}")
            tx.note_need(name, place, size)


class UnreadDeque(UnreadList, DequeValue):
    base = collections.deque

    def __init__(self, tx: Tracer, real: Any, source: Source, read: Callable[[], Items]) -> None:
        super().__init__(tx, real, source, read)
        self.maxlen = real.maxlen

    def own(self, items: Items) -> Any:
        return collections.deque(items, self.maxlen)

    def write(self, tx: Tracer, method: Any, items: list[Value], *where: Value) -> None:
        self.state += 1
        super().write(tx, method, items, *where)

    def add(self, tx: Tracer, items: list[Value]) -> None:
        if self._reader is None:
            super().add(tx, items)
        else:
            self.write(tx, collections.deque.extend, items)

    def add_left(self, tx: Tracer, items: list[Value]) -> None:
        if self._reader is None:
            super().add_left(tx, items)
        else:
            self.write(tx, collections.deque.extendleft, items)


class UnreadDict(Unread, DictValue):
    """A dict of the program. `_written`: keys and values, None for one that is deleted; `_places`:
    where the keys are there that a key read later can be compared with."""

    def __init__(
        self,
        tx: Tracer,
        real: Any,
        base: type,
        source: Source,
        read: Callable[[], list[tuple[Value, Pending]]],
    ) -> None:
        self.base = own_class(real)
        self._held: dict[Hashable, tuple[Value, Value | Pending]] = {}
        self._written: list[tuple[Value, Value | None]] = []
        self._places: dict[Hashable, int] = {}
        super().__init__((), base, source, tx)
        self.known_from(tx, real, read)

    @property
    def _entries(self) -> dict[Hashable, tuple[Value, Value | Pending]]:
        if self._reader is not None:
            if self._size > LARGE:
                raise Break("FB0009", f"all of a {self.cls.__name__} of {self._size} items")
            read, self._reader = self._reader, None
            self._held = {key_of(self._tx, key): (key, value) for key, value in read()}
            for key, value in self._written:
                hashed = key_of(self._tx, key)
                if value is None:
                    del self._held[hashed]
                else:
                    self._held[hashed] = (self._held.get(hashed, (key,))[0], value)
        return self._held

    @_entries.setter
    def _entries(self, entries: dict[Hashable, tuple[Value, Value | Pending]]) -> None:
        self._reader = None
        self._held = entries

    def has_changed(self) -> bool:
        return bool(self._written)

    def holds(self) -> Iterable[Value]:
        if self._reader is None:
            return super().holds()
        return [value for _, value in self._written if value is not None]

    def clear(self, tx: Tracer) -> None:
        tx.heap.changed(self)
        self._entries = {}

    def store(self, tx: Tracer, key: Value, value: Value) -> None:
        if self._reader is None or not _is_plain(key):
            super().store(tx, key, value)
            return
        _assume_hashed(tx, key)
        tx.heap.changed(self)
        known = _known_key(key)
        place = self._places.get(known, len(self._written))
        if known is not None:
            self._places[known] = place
        first = self._written[place][0] if place < len(self._written) else key
        self._written[place : place + 1] = [(first, value)]

    def remove(self, tx: Tracer, key: Value) -> Value | None:
        if not self._is_by_key(tx, key):
            return super().remove(tx, key)
        found = self.lookup(tx, key)
        if found is not None:
            tx.heap.changed(self)
            self._places.clear()  # a key that is set again comes last
            self._written.append((key, None))
        return found

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        if not self._is_by_key(tx, key):
            return super().lookup(tx, key)
        written = self._last_written(tx, key)
        if written is not None:
            return written[1]
        hashed = _looked_up(tx, key, dict_key)
        if not dict.__contains__(self.real, hashed):
            tx.guard(self.source, "DICT_NOT_CONTAINS", hashed)
            return None
        place = item_of(self.real, self.source, hashed, "dict")
        tx.guard(place, "EXISTS")
        return tx.wrap(dict.__getitem__(self.real, hashed), place)

    def contains(self, tx: Tracer, item: Value) -> bool:
        if not self._is_by_key(tx, item):
            return super().contains(tx, item)
        written = self._last_written(tx, item)
        if written is not None:
            return written[1] is not None
        hashed = _looked_up(tx, item, dict_key)
        found = dict.__contains__(self.real, hashed)
        tx.guard(self.source, "DICT_CONTAINS" if found else "DICT_NOT_CONTAINS", hashed)
        return found

    def _is_by_key(self, tx: Tracer, key: Value) -> bool:
        """Whether what is under a key is known without all the others."""
        if self._reader is None or not _is_plain(key):
            return False
        return self._varies or self._last_written(tx, key) is not None

    def _last_written(self, tx: Tracer, key: Value) -> tuple[Value, Value | None] | None:
        """What the frame itself has last put under a key."""
        for written in reversed(self._written):
            if _is_same(tx, written[0], key):
                return written
        return None

    def replay(self, writer: Any) -> None:
        if self._reader is None:
            super().replay(writer)
            return
        for key, value in self._written:
            if value is None:
                writer.do(self.base.__delitem__, [self, key])
            else:
                writer.do(self.base.__setitem__, [self, key, value])


class UnreadSet(Unread, SetValue):
    """A set of the program. What it holds is made an attribute when one is looked for."""

    def __init__(
        self, tx: Tracer, real: Any, source: Source, base: type, read: Callable[[], list[Value]]
    ) -> None:
        self.base = self.cls = base
        self._tx = tx
        self.source = source
        self._done = []
        self.known_from(tx, real, read)

    def __getattr__(self, name: str) -> Any:
        if self._reader is None or name not in ("_found", "_order", "_items"):
            raise AttributeError(name)
        if self._size > LARGE:
            raise Break("FB0009", f"all of a set of {self._size} items")
        read, self._reader = self._reader, None
        written = self._done
        SetValue.__init__(self, read(), self.base, self.source, self._tx, self.real)
        for method, (item,) in written:
            change = self.insert if method is set.add else self.drop
            change(key_of(self._tx, item), item)
        return self.__dict__[name]

    def has_changed(self) -> bool:
        return bool(self._done)

    def holds(self) -> Iterable[Value]:
        if self._reader is None:
            return super().holds()
        return [item for _, given in self._done for item in given]

    def contains(self, tx: Tracer, item: Value) -> bool:
        if self._reader is None or not _is_plain(item):
            return super().contains(tx, item)
        if not (self._done or self._varies):
            return super().contains(tx, item)
        for method, (written,) in reversed(self._done):
            if _is_same(tx, written, item):
                return method is set.add
        if not self._varies:
            return super().contains(tx, item)
        hashed = _looked_up(tx, item, set_element)
        found = set.__contains__(self.real, hashed)
        tx.guard(self.source, "SET_CONTAINS" if found else "SET_NOT_CONTAINS", hashed)
        return found

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "update" and self._reader is not None and all(map(_adds_in_turn, args)):
            for item in [item for given in args for item in unpack(tx, given)]:
                self.call_method(tx, "add", [item], {})
            return Constant(None)
        unread = self._reader is not None and name in ("add", "discard", "remove")
        if not unread or not _is_plain(args[0]):
            return super().call_method(tx, name, args, kwargs)
        if name == "remove":
            if not self.contains(tx, args[0]):
                raise_key_error(tx, args[0])
            if self._reader is None:  # to ask may read it
                return super().call_method(tx, name, args, kwargs)
        _assume_hashed(tx, args[0])
        tx.heap.changed(self)
        self.log(set.add if name == "add" else set.discard, args[0])
        return Constant(None)


def _adds_in_turn(given: Value) -> bool:
    """Whether to update a set by it is to add one item after the other."""
    return given.cls in (list, tuple, str)


def _is_plain(key: Value) -> bool:
    """Whether no code of the program runs where it is hashed and compared, and it can be."""
    if isinstance(key, TupleValue):
        return key.cls is tuple and all(map(_is_plain, key.parts()))
    if type(key) is Constant and type(key._value).__hash__ is None:  # a slice, until 3.12
        return False
    return type(key) in (Constant, SymbolValue, OpenText)


def _assume_hashed(tx: Tracer, key: Value) -> None:
    """Guard the class of a key whose value is left open: of one that cannot be hashed the program's
    handlers are to hear where it is put in, which is later."""
    for part in key.parts() if isinstance(key, TupleValue) else ():
        _assume_hashed(tx, part)
    if type(key) is Constant and not key.is_committed:
        tx.guard(key.source, "TYPE_MATCH", type(key._value))


def _is_same(tx: Tracer, one: Value, other: Value) -> bool:
    """Whether two keys are one to a dict or a set."""
    if isinstance(one, TupleValue) and isinstance(other, TupleValue):
        parts, others = one.parts(), other.parts()
        apart = len(parts) != len(others) or any(map(never_equal, parts, others))
    else:
        apart = never_equal(one, other)
    return one is other or (not apart and key_of(tx, one) == key_of(tx, other))


def _looked_up(tx: Tracer, key: Value, of: KeyOf) -> Hashable:
    """A key that is looked for; of an open number, two are guarded and a third ends the graph."""
    numbers, before = open_numbers([key]), tx.shapes.constants()
    found = of(tx, key)
    note_constants(tx, "a look-up", numbers, before)
    return found


def _known_key(key: Value) -> Hashable | None:
    """A key as one can look for it without assuming what it is; None where that is not known."""
    if isinstance(key, TupleValue):
        parts = tuple(map(_known_key, key.parts()))
        return None if None in parts else parts
    return (key.value,) if type(key) is Constant and key.is_committed else None
