"""Closure cells as values.

In: a cell of the program, or one that it makes while it is interpreted. Out: `CellValue`.
Invariant: a cell that is found empty is guarded to be so.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import FreeCell, Source
from flambeau_capture.values.base import Tracer, Value


class CellValue(Value):
    """A closure cell. `content` is None while it is empty."""

    def __init__(
        self,
        content: Value | None = None,
        *,
        name: str = "",
        own: bool = False,
        real: Any = None,
        source: Source | None = None,
        pending: tuple[Any, Source] | None = None,
        tx: Any = None,
    ) -> None:
        self._content = content
        self.name = name
        self.own = own
        self.real = real
        self.source = source
        self.pending = pending
        self._tx = tx
        self.written = False

    @property
    def cls(self) -> type:
        return types.CellType

    @property
    def content(self) -> Value | None:
        if self._content is None and self.pending is not None:
            real, source = self.pending
            self.pending = None
            self._content = self._tx.wrap(real, source)
        if self._content is None and self.own and not self.written:
            self._tx.guard(self.place(), "CALL", is_empty, "is empty")
        return self._content

    def place(self) -> Source | None:
        """Where the cell itself is; the source of a frame's own cell leads to what it holds."""
        return FreeCell(self.name) if self.own and self.source is not None else self.source

    def write(self, tx: Tracer, value: Value | None) -> None:
        self.pending = None
        self._content = value
        self.written = True
        if self.source is not None:
            tx.heap.changed(self)
        else:
            tx.heap.changed()

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "cell_contents":
            content = self.content
            if content is None:
                tx.raise_error(ValueError, "Cell is empty")
            return content
        self.unknown(f"attribute {name!r}")

    def reconstruct(self, writer: Any) -> None:
        if self.own:
            writer.load_cell(self.name)
        elif self.source is not None:
            writer.load_source(self.source)
        else:
            with writer.building(self):
                writer.new_cell(self)

    def replay(self, writer: Any) -> None:
        content = self.content
        if content is None:
            raise Break("FB0019", "deletion of a variable of an enclosing function")
        writer.load(content)
        writer.load(self)
        writer.store_attr("cell_contents")


def is_empty(cell: types.CellType) -> bool:
    """A guard's question: does a cell hold nothing?"""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False
