"""Tuples as values: plain, torch.Size, named, torch's result types.

In: tuples of the program or new ones. Out: `TupleValue`, `make_tuple`. Invariant: a tuple class
adds names to items, never state.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch

from flambeau_capture.source import ClassEntry, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.sequences import (
    SEQUENCE_METHODS,
    Pending,
    SequenceValue,
    sequence_method,
)
from flambeau_capture.values.containers.slices import SliceValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import (
    FIELD,
    assume_entry,
    class_attribute,
    find_in_class,
)


class TupleValue(SequenceValue):
    """Tuples, torch.Size, named tuples, and the result types of torch."""

    immutable = True

    def __init__(
        self,
        items: Iterable[Value | Pending],
        python_class: type = tuple,
        source: Source | None = None,
        tx: Any = None,
    ) -> None:
        super().__init__(items, source, tx)
        self._class = python_class

    @property
    def cls(self) -> type:
        return self._class

    def describe(self) -> str:
        return f"{self._class.__name__} of {len(self._items)}"

    def as_python(self) -> Any:
        return make_tuple(self._class, [part.as_python() for part in self.parts()])

    def graph_argument(self) -> Any:
        return tuple(part.graph_argument() for part in self.parts())

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue) and self._class is tuple:
            where = range(*evaluate(tx, key.as_slice().indices, len(self._items)))
            if where.step == 1 and len(where) == len(self._items):
                return self  # all of a tuple is the tuple
        return super().get_item(tx, key)

    def like(self, items: list[Value]) -> Value:
        return TupleValue(items, torch.Size if self._class is torch.Size else tuple)

    def fields(self) -> tuple[str, ...]:
        """Names of the items, where they have names."""
        names = getattr(self._class, "_fields", None)
        if names is None and hasattr(self._class, "n_sequence_fields"):
            names = self._class.__match_args__  # type: ignore[attr-defined]
        return tuple(names or ())

    def get_attr(self, tx: Tracer, name: str) -> Value:
        assume_entry(tx, self._class, name)
        written = find_in_class(self._class, name)
        if written is not None and isinstance(written[1], FIELD):
            return self.item(written[1].__reduce__()[1][0])
        names = self.fields()
        if name in names and hasattr(self._class, "n_sequence_fields"):
            return self.item(names.index(name))
        if name == "__class__":
            return tx.wrap_new(self._class)
        if name == "_fields" and hasattr(self._class, name):
            where = ConstantSource(self._class, self._class.__name__)
            return tx.wrap(self._class._fields, ClassEntry(where, name))  # type: ignore[attr-defined]
        if written is not None and isinstance(written[1], _PYTHON_ATTRIBUTES):
            return class_attribute(tx, self, self._class, name)
        found = getattr(self._class, name, None)
        if name == "__dict__" or (found is None and not hasattr(self._class, name)):
            tx.raise_error(
                AttributeError, f"'{self._class.__name__}' object has no attribute '{name}'"
            )
        if callable(found):
            return BoundMethod(self, name)
        return tx.wrap_new(found)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "numel" and self._class is torch.Size:
            total: Value = Constant(1)
            for size in self.parts():
                total = tx.binary("*", total, size)
            return total
        if name in ("_replace", "_asdict") or (
            name not in SEQUENCE_METHODS and not hasattr(tuple, name)
        ):
            return tx.call(self.get_attr(tx, name), args, kwargs)
        return sequence_method(self, tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
            return
        with writer.building(self):
            if self._class is tuple:
                for part in self.parts():
                    writer.load(part)
                writer.build_tuple(len(self._items))
            elif hasattr(self._class, "_fields"):
                writer.call(_make_named, [Constant(self._class), TupleValue(self.parts())])
            else:
                writer.call(self._class, [TupleValue(self.parts())])


_PYTHON_ATTRIBUTES = (types.FunctionType, classmethod, staticmethod, property)


def _make_named(kind: Any, items: tuple[Any, ...]) -> Any:
    return tuple.__new__(kind, items)


def make_tuple(kind: type, items: list[Any]) -> Any:
    """A tuple of a tuple class."""
    if kind is tuple:
        return tuple(items)
    if hasattr(kind, "_fields"):
        return tuple.__new__(kind, items)
    return kind(items)
