"""Variables of functions: closure cells, and globals by name or through `globals()`.

In: cells and dicts of modules. Out: `CellValue`, `GlobalsScope`, `GlobalsDict`. Invariant: what is
read is guarded, that a cell is empty included; what is written waits for the end of the graph.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.resume_runtime import is_empty
from flambeau_capture.source import Builtin, ConstantSource, FreeCell, Global, Item, Source
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import MappingValue


@dataclass(eq=False, repr=False)
class CellValue(Value):
    """A closure cell. `content` is None while it is empty."""

    cls = types.CellType

    _content: Value | None = None
    name: str = ""
    own: bool = False
    real: Any = None
    source: Source | None = None
    pending: tuple[Any, Source] | None = None
    tx: Any = None
    written: bool = False
    in_closure: bool = False
    owner: types.CodeType | None = None  # whose variable it is, where that is known

    @property
    def content(self) -> Value | None:
        if self._content is None and self.pending is not None:
            self._content = self.tx.wrap(*self.pending)
            self.pending = None
        if self._content is None and self.own and not self.written:
            self.tx.guard(self.place(), "CALL", is_empty, "is empty")
        return self._content

    def place(self) -> Source | None:
        """Where the cell itself is; the source of a frame's own cell leads to what it holds."""
        return FreeCell(self.name) if self.own and self.source is not None else self.source

    def write(self, tx: Tracer, value: Value | None) -> None:
        self.pending = None
        self._content = value
        self.written = True
        tx.heap.changed(self)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "cell_contents":
            content = self.content
            if content is None:
                tx.raise_error(ValueError, "Cell is empty")
            return content
        self.unknown(f"attribute {name!r}")

    def reconstruct(self, writer: Any) -> None:
        if self.own:
            writer.load_cell(self.name, self._content)
        elif self.source is not None:
            writer.load_source(self.source)
        else:
            with writer.building(self):
                writer.new_cell(self)

    def replay(self, writer: Any) -> None:
        content = self.content
        if content is None:
            writer.do(delattr, [self, Constant("cell_contents")])
            return
        writer.load(content)
        writer.load(self)
        writer.store_attr("cell_contents")


def existing_cell(
    tx: Tracer, cell: types.CellType, source: Source, content: Source, name: str = ""
) -> CellValue:
    """The value of a cell of the program, at `source`; what it holds is at `content`."""
    known: CellValue | None = tx.heap.find(cell)
    if known is not None:
        place = known.place()
        assert place is not None
        tx.guard_alias(place, source)
        return known
    try:
        pending = (cell.cell_contents, content)
    except ValueError:
        tx.guard(source, "CALL", is_empty, "is empty")
        pending = None
    made = CellValue(name=name, real=cell, source=source, pending=pending, tx=tx)
    tx.heap.know(cell, made)
    return made


class GlobalsScope:
    """The global variables that code sees: reads are guarded, writes kept for replay."""

    def __init__(
        self,
        namespace: dict[str, Any],
        own: bool = False,
        builtin_names: dict[str, Any] | None = None,
    ) -> None:
        self.namespace = namespace
        #: what code sees after its globals: the frame's, or what the module says
        self.builtins = _builtins_of(namespace) if builtin_names is None else builtin_names
        self.own = own  # whether they are the globals of the frame under capture
        self.written: dict[str, Value | None] = {}
        self._moved: set[str] = set()  # names that were deleted, then set
        self.set_once: Collection[str] | None = None  # names that its module's code sets once
        self.source = ConstantSource(namespace, f"globals of {namespace.get('__name__')}")
        self._as_dict: GlobalsDict | None = None

    def as_dict(self) -> GlobalsDict:
        """The dict itself, which is one object."""
        if self._as_dict is None:
            self._as_dict = GlobalsDict(self)
        return self._as_dict

    def load(self, tx: Tracer, name: str) -> Value | None:
        if name in self.written:
            return self.written[name]
        if name not in self.namespace:
            return None
        source = Global(name) if self.own else Item(self.source, name, "dict")
        return tx.wrap(self.namespace[name], source)

    def load_builtin(self, tx: Tracer, name: str, of_frame: dict[str, Any]) -> Value | None:
        """A name of Python's own, which a program may replace; `of_frame`: what guards read."""
        if str(self.namespace.get("__name__")).partition(".")[0] == _CAPTURE:
            found = _OURS.get(name)  # capture's own code means Python's
            return None if found is None else tx.wrap(found, ConstantSource(found, name))
        if name not in self.builtins:
            return None
        found = self.builtins[name]
        if self.builtins is of_frame:
            return tx.wrap(found, Builtin(name))
        return tx.wrap(found, Item(ConstantSource(self.builtins, "builtins"), name, "dict"))

    def store(self, tx: Tracer, name: str, value: Value | None) -> None:
        if value is not None and name in self.written and self.written[name] is None:
            del self.written[name]  # it has lost its place among the names
            self._moved.add(name)
        self.written[name] = value
        tx.heap.log(self)

    def replay(self, writer: Any) -> None:
        for name, value in self.written.items():
            if value is None or name in self._moved:
                writer.delete_global(self, name)
            if value is not None:
                writer.load(value)
                writer.store_global(self, name)


unguarded(
    "built-in names that capture's own Python code uses in place of a function written in C",
    "that function does not look them up either",
)

_CAPTURE = __name__.partition(".")[0]
_OURS = dict(vars(builtins))


def _builtins_of(namespace: dict[str, Any]) -> dict[str, Any]:
    found: Any = namespace.get("__builtins__", builtins)
    return found if isinstance(found, dict) else vars(found)


class GlobalsDict(MappingValue):
    """`globals()`: names of a module as items."""

    described = "globals()"

    def __init__(self, scope: GlobalsScope) -> None:
        self.scope = scope

    def truth(self, tx: Tracer) -> bool:
        return True

    def contains(self, tx: Tracer, item: Value) -> bool:
        name = item.as_python()
        if name in self.scope.written:
            return self.scope.written[name] is not None
        found = name in self.scope.namespace
        tx.guard(self.scope.source, "DICT_CONTAINS" if found else "DICT_NOT_CONTAINS", name)
        return found

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        return self.scope.load(tx, key.as_python()) if self.contains(tx, key) else None

    def store(self, tx: Tracer, key: Value, value: Value) -> None:
        self.scope.store(tx, key.as_python(), value)

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.scope.namespace)
