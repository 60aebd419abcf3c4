"""Views of dictionaries: their keys, values and items.

In: a dict and which of the three; a view of the program. Out: `DictView`. Invariant: a view has
nothing of its own: it is of what its dict has when it is read.
"""

from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any

from flambeau_capture.breaks import Break
from flambeau_capture.lookahead import VIEWS
from flambeau_capture.source import Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.containers.sequences import TupleValue, tx_equal
from flambeau_capture.values.functions.methods import PROTOCOL, BuiltinKind
from flambeau_capture.values.iterators.builtin import KeysIterator
from flambeau_capture.values.registry import DefinedAbove

if TYPE_CHECKING:
    from flambeau_capture.values.containers.dicts import DictValue


algebra_of_keys = DefinedAbove("what sets, which are made of keys, do to them")


class DictView(BuiltinKind):
    """dict.keys(), values() and items(): they follow the dict."""

    built_once = True

    def __init__(self, target: DictValue, kind: str, source: Source | None = None) -> None:
        self.target = target
        self.kind = kind
        self.source = source

    @property
    def cls(self) -> type:
        ordered = self.target.cls is collections.OrderedDict
        return type(VIEWS[collections.OrderedDict if ordered else dict, self.kind])

    def parts(self) -> list[Value]:
        if self.kind == "keys":
            return self.target.keys()
        if self.kind == "values":
            return self.target.values()
        return [TupleValue([key, value]) for key, value in self.target.entries()]

    def as_python(self) -> Any:
        return getattr(self.target.as_python(), self.kind)()

    def truth(self, tx: Tracer) -> bool:
        return self.target.truth(tx)

    def length(self, tx: Tracer) -> int:
        return self.target.length(tx)

    def count(self, tx: Tracer) -> Value:
        return self.target.count(tx)

    def iterate(self, tx: Tracer) -> IteratorValue:
        return self._iterator(backwards=False)

    def _iterator(self, backwards: bool) -> IteratorValue:
        keys = self.target.keys()
        now = None if self.kind == "keys" else self._now
        given = keys[::-1] if backwards else keys
        return KeysIterator(self.target, given, now, self.kind, backwards)

    def _now(self, tx: Any, key: Value) -> Value:
        """The value or the item of a key when an iterator comes to it."""
        value = self.target.lookup(tx or self.target._tx, key)
        if value is None:
            raise Break("FB0014", "iteration over a dict whose keys have changed on the way")
        return value if self.kind == "values" else TupleValue([key, value])

    def contains(self, tx: Tracer, item: Value) -> bool:
        if self.kind == "keys":
            return self.target.contains(tx, item)
        if self.kind == "values":
            return any(tx_equal(tx, part, item) for part in self.parts())
        if not issubclass(item.cls, tuple):  # no comparison of the item's own is called
            return False
        pair = unpack(tx, getattr(item, "payload", None) or item)
        found = self.target.lookup(tx, pair[0]) if len(pair) == 2 else None
        return found is not None and tx_equal(tx, found, pair[1])

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "mapping":
            return tx.call(tx.wrap_new(types.MappingProxyType), [self.target], {})
        return super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__reversed__":
            return self._iterator(backwards=True)
        if self.kind == "values" or name in PROTOCOL:
            return super().call_method(tx, name, args, kwargs)
        if self.kind == "items" and name != "isdisjoint":
            return super().call_method(tx, name, args, kwargs)
        return algebra_of_keys(tx, self, name, args)

    def rebuild(self, writer: Any) -> None:
        writer.load(self.target)
        writer.call_method_top(self.kind)
