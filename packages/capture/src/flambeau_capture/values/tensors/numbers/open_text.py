"""Text of which open numbers are a part.

In: values and formats. Out: `OpenText`, put together where it is read. Invariant: only reading its
value fixes the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue


class OpenText(Constant):
    """Text of which open numbers are a part, or strings that are only passed along. `parts`: each
    with its format. Reading its value fixes them."""

    def __init__(self, tx: Tracer, parts: Sequence[tuple[Constant, str]]) -> None:
        self.parts_of_text = tuple(parts)
        texts = [format(_present(tx, part), spec) for part, spec in parts]
        super().__init__("".join(texts), None, self._fix)

    @property
    def cls(self) -> type:
        return str

    def holds(self) -> Iterable[Value]:
        return [value for part, _ in self.parts_of_text for value in part.holds()]

    def _fix(self) -> None:
        for part, _ in self.parts_of_text:
            part.value  # noqa: B018 - reading it assumes it

    def contains(self, tx: Tracer, item: Value) -> bool:
        """By what is known of its parts, where that has it."""
        plain = type(item) is Constant and item.cls is str and item.is_committed
        texts = (_known(part) for part, spec in self.parts_of_text if plain and not spec)
        return any(item._value in text for text in texts) or super().contains(tx, item)  # type: ignore[attr-defined]

    def may_be(self, text: object) -> bool:
        """Whether it may come to a text: by what it begins and ends with."""
        ends = (self.parts_of_text[place] for place in (0, -1))
        found = (part._value if part.is_committed and not spec else None for part, spec in ends)
        begin, end = (each if type(each) is str else "" for each in found)
        return isinstance(text, str) and text.startswith(begin) and text.endswith(end)

    def reconstruct(self, writer: Any) -> None:
        if self.is_committed:
            super().reconstruct(writer)
            return
        given = [each for part, spec in self.parts_of_text for each in (part, Constant(spec))]
        writer.call(_join, given)


def _join(*given: Any) -> str:
    return "".join(map(format, given[::2], given[1::2]))


def _known(part: Constant) -> str:
    """What a part begins with, whatever else it is."""
    found = getattr(part, "known", part._value if part.is_committed else "")
    return found if type(found) is str else ""


def _present(tx: Tracer, part: Constant) -> Any:
    return tx.shapes.present(part.number) if isinstance(part, SymbolValue) else part._value


def never_equal(one: Value, other: Value) -> bool:
    """Whether two keys differ whatever their open numbers are, without reading them."""
    if isinstance(one, OpenText) and isinstance(other, OpenText):
        return False
    for text, key in ((one, other), (other, one)):
        if isinstance(text, OpenText):
            return type(key) is not Constant or not text.may_be(key.value)
        if isinstance(text, SymbolValue) and not isinstance(key, SymbolValue):
            return type(key) is not Constant or not isinstance(key.value, int | float | complex)
    return False


def open_text(tx: Tracer, value: Value, spec: str) -> Value | None:
    """A value formatted, where it may stay open; None: it is known, or has to be."""
    is_symbol = isinstance(value, SymbolValue) and not value._known
    is_string = type(value) is Constant and type(value._value) is str and not value.is_committed
    if not is_symbol and not is_string:
        return None
    assert isinstance(value, Constant)
    if is_string:
        tx.guard(value.source, "TYPE_MATCH", str)
    try:
        return OpenText(tx, [(value, spec)])
    except ValueError:
        return None  # the program raises it


def joined_text(tx: Tracer, parts: Sequence[Value]) -> Value | None:
    """Texts put together, where one of them is open."""
    if not any(isinstance(part, OpenText) and not part.is_committed for part in parts):
        return None
    if not all(isinstance(part, Constant) and part.cls is str for part in parts):
        return None
    found: list[tuple[Constant, str]] = []
    for part in parts:
        assert isinstance(part, Constant)
        found += part.parts_of_text if isinstance(part, OpenText) else [(part, "")]
    return OpenText(tx, found)
