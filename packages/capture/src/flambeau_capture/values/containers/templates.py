"""Template strings (PEP 750): what `t"..."` gives, and each of its interpolations.

In: the strings between the braces, and the values of what stands in them. Out: their values, with
the attributes that the library's classes have. Invariant: nothing is formatted here, so a tensor in
a template is a value like another. They are objects of their own: two are never one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from flambeau_capture.values.base import IteratorValue, Tracer, Unreconstructible, Value
from flambeau_capture.values.constant import constant_of
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BuiltinKind
from flambeau_capture.values.iterators.builtin import SequenceIterator


@functools.cache
def _library() -> Any:
    return importlib.import_module("string.templatelib")  # new in Python 3.14


class _MadeOfParts(BuiltinKind):
    """An object of attributes that never change."""

    built_once = True
    fields: dict[str, Value]

    def parts(self) -> list[Value]:
        return [*self.fields.values()]

    def holds(self) -> Sequence[Value]:
        return self.parts()

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found = self.fields.get(name)
        return super().get_attr(tx, name) if found is None else found


class InterpolationValue(_MadeOfParts):
    """What one pair of braces gives."""

    described = "interpolation"

    def __init__(self, *fields: Value) -> None:
        self.fields = dict(zip(("value", "expression", "conversion", "format_spec"), fields))

    @property
    def cls(self) -> type:
        found: type = _library().Interpolation
        return found

    def as_python(self) -> Any:
        return self.cls(*(part.as_python() for part in self.parts()))

    def reconstruct(self, writer: Any) -> None:
        writer.call(self.cls, self.parts())


class TemplateValue(_MadeOfParts):
    """The whole: one string more than interpolations, empty where nothing stands between."""

    described = "template"

    def __init__(self, strings: Value, interpolations: Value) -> None:
        self.fields = {"strings": strings, "interpolations": interpolations}

    @property
    def cls(self) -> type:
        found: type = _library().Template
        return found

    def _inside(self) -> tuple[list[Value], list[Value]]:
        strings, interpolations = self.parts()
        assert isinstance(strings, TupleValue) and isinstance(interpolations, TupleValue)
        return strings.parts(), interpolations.parts()

    def _in_turn(self) -> list[Value]:
        """Strings that are not empty, and interpolations, as they stand in the text."""
        strings, interpolations = self._inside()
        pairs = [part for pair in zip(strings, interpolations) for part in pair]
        return [one for one in (*pairs, strings[-1]) if one in interpolations or constant_of(one)]

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "values" and name not in self.fields:
            each = [one.get_attr(tx, "value") for one in self._inside()[1]]
            return TupleValue(each)
        return super().get_attr(tx, name)

    def as_python(self) -> Any:
        return self.cls(*(part.as_python() for part in self._in_turn()))

    def iterate(self, tx: Tracer) -> IteratorValue:
        return TemplateIterator(TupleValue(self._in_turn()))

    def reconstruct(self, writer: Any) -> None:
        writer.call(self.cls, self._in_turn())


class TemplateIterator(SequenceIterator):
    """Of the parts of a template. Its class takes no position: it is not made again."""

    @property
    def cls(self) -> type:
        return type(iter(_library().Template()))

    def reconstruct(self, writer: Any) -> None:
        raise Unreconstructible(self, "an iterator of a template string")
