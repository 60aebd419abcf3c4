"""Bytecode that reconstructs values.

In: values, one after the other. Out: instructions that push them, and which of the graph's results
they need. Invariant: an object is built once and found again by its temporary, so aliases stay
aliases; everything that exists is read before any effect is replayed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CellType, CodeType, MappingProxyType
from typing import Any

from torch import fx

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.pools import AssembleError
from flambeau_capture.bytecode.stack import StackError
from flambeau_capture.emit.level import Level
from flambeau_capture.emit.resume import CannotResume, generator_code, make_generator
from flambeau_capture.source import ConstantSource, Local, Source, emit, shared_numbers
from flambeau_capture.values.base import Unreconstructible, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue

EMPTY: Mapping[str, Value] = MappingProxyType({})


def _spelled(make: Callable[..., list[Instruction]]) -> Callable[..., None]:
    def write(self: BytecodeWriter, *operands: Any) -> None:
        self.body += make(*operands)

    return write


class BytecodeWriter:
    """Accumulates `first` (before the graph), `early` (reads of the program's state) and `body`
    (everything after)."""

    def __init__(
        self,
        code: CodeType,
        level_of: Callable[[Any, bool], Level],
        own_of: Callable[[Any], Value | None] = lambda _: None,
    ) -> None:
        self.code = code
        self._own_of = own_of  # the value that an object of capture's own stands for
        self._level_of = level_of  # the frame of a generator, and whether it has started
        self.first: list[Instruction] = []
        self.early: list[Instruction] = []
        self._kept: dict[Source, str] = {}
        self.body: list[Instruction] = []
        self.outputs: dict[fx.Node, str] = {}
        self.numbers: set[fx.Node] = set()  # those outputs of an export that are no tensors
        self.used_cells: set[str] = set()
        self._cells = frozenset(code.co_cellvars) | frozenset(code.co_freevars)
        self._temporaries: dict[int, tuple[Value, str]] = {}
        self._sources: dict[Source, str] = {}
        self._building: set[int] = set()
        self._makers = 0  # how many of them are functions and classes
        self._unfilled: list[tuple[Any, Value]] = []  # cells that are still empty, what they hold
        self._held: dict[str, Any] = {}
        self._count = 0

    # -- values ---------------------------------------------------------------------------------

    def load(self, value: Value) -> None:
        """Push a value."""
        known = self._temporaries.get(id(value))
        if known is not None:
            self.body += spelling.load_fast_bound(known[1])
            return
        if value.kept is not None:
            raise Unreconstructible(value, value.kept.report.what)
        if value.stays_since is not None:
            raise Unreconstructible(value, f"{value.describe()}, which leaves the frame")
        if id(value) in self._building:
            raise Unreconstructible(value, f"{value.describe()} holds itself")
        if value.built_once and value.source is None:
            with self.building(value):
                value.reconstruct(self)
        else:
            value.reconstruct(self)

    @contextmanager
    def building(self, value: Value) -> Iterator[None]:
        """The block pushes a new object, which is then kept for the next time it is loaded."""
        self._building.add(id(value))
        self._makers += value.in_cells
        try:
            yield
        finally:
            self._building.discard(id(value))
        name = self._temporary()
        self.body += [*spelling.dup_top(), *spelling.store_fast(name)]
        self._temporaries[id(value)] = (value, name)
        if value.in_cells:
            self._makers -= 1
            self._fill_cells()

    def load_const(self, value: Any) -> None:
        """Push an object. Of texts that look like names a code object keeps the interned one."""
        own = self._own_of(value)
        if own is not None:
            self.load(own)
            return
        named = type(value) is str and value.isascii() and value.replace("_", "a").isalnum()
        if named and sys.intern(value) is not value:
            self.body += [*spelling.load_const([value]), *spelling.load_const(0)]
            self.body += spelling.binary_subscr()
        else:
            self.body += spelling.load_const(value)

    def load_source(self, source: Source) -> None:
        """Push what the program holds at a source, as it was when the frame was entered."""
        if isinstance(source, ConstantSource):
            self.load_const(source.object)
            return
        if isinstance(source, Local) and source.variable not in self._cells:
            self.body += self.read(source)
            return
        name = self._sources.get(source)
        if name is None:
            name = self._sources[source] = self._temporary()
            self.early += [*self.read(source), *spelling.store_fast(name)]
        self.body += spelling.load_fast_bound(name)

    def read(self, source: Source) -> list[Instruction]:
        """Instructions that push what a source holds now."""
        found = emit(source, self)
        for instruction in found:
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval in self._held:
                instruction.opname = "LOAD_CONST"
                instruction.argval = self._held[str(instruction.argval)]
            elif instruction.opname.startswith("LOAD_FAST"):
                in_cell = instruction.argval in self._cells
                instruction.opname = "LOAD_DEREF" if in_cell else "LOAD_FAST"
        return found

    def keep(self, sources: Iterable[Source]) -> list[Instruction]:
        """Instructions that compute what several of these numbers share, each once."""
        made: list[Instruction] = []
        for source in shared_numbers(sources):
            name = self._temporary()
            made += [*self.read(source), *spelling.store_fast(name)]
            self._kept[source] = name
        return made

    def variable_of(self, source: Source) -> str | None:
        """The variable of the code being written that has a number that is computed once."""
        return self._kept.get(source)

    def global_name(self, obj: Any) -> str:
        """A name that stands for an object in what `emit` spells; see `read`."""
        own = self._own_of(obj)
        if own is not None:
            raise Unreconstructible(own, f"a part of {own.describe()}")
        name = f"__held_{len(self._held)}"
        self._held[name] = obj
        return name

    def load_graph_output(self, node: fx.Node) -> None:
        name = self.outputs.get(node)
        if name is None:
            name = self.outputs[node] = f"___out_{len(self.outputs)}"
        self.body += spelling.load_fast_bound(name)

    def load_cell(self, name: str, content: Value | None) -> None:
        """Push a cell of the frame itself, which is filled at the end: with what may be called
        before, as the methods of a key in a set are, it is filled here too."""
        self.used_cells.add(name)
        self.body += spelling.load_closure(name)
        made = content is not None and content.in_cells and content.source is None
        if content is not None and made and name in self.code.co_cellvars:
            self._unfilled.append((name, content))
            self._fill_cells()

    def load_generator(self, value: Value, frame: Any, started: bool) -> None:
        """Push a generator that is where an interpreted one is."""
        try:
            level = self._level_of(frame, started)
            code = generator_code(level, started)
        except (CannotResume, AssembleError, StackError) as error:
            raise Unreconstructible(value, f"{value.describe()}: {error}") from error
        own = level.body.code
        cells = [level.cells[name] for name in (*own.co_freevars, *own.co_cellvars)]
        arguments = [level.variables[name] for name in level.live()]
        given = [*arguments, *level.passed()]
        with self.building(value):
            fixed = [Constant(each) for each in (code, level.namespace, started)]
            self.call(make_generator, [*fixed, TupleValue(cells), TupleValue(given)])  # type: ignore[arg-type]

    def new_cell(self, cell: Any) -> None:
        """Push a new cell. In the making of a function or a class, which may be in its own cells or
        in those of what it leads to, such are put into cells once it is there."""
        content = cell.content
        if content is not None and content.in_cells and self._makers:
            self._unfilled.append((cell, content))
            content = None
        self.call(_make_cell, [] if content is None else [content])

    def _fill_cells(self) -> None:
        while self._unfilled and not self._makers:
            cell, content = self._unfilled.pop()
            self.load(content)
            if isinstance(cell, str):
                self.body += spelling.store_deref(cell)
            else:
                self.load(cell)
                self.store_attr("cell_contents")

    # -- calls ----------------------------------------------------------------------------------

    def call(
        self, fn: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value] = EMPTY
    ) -> None:
        """Push `fn(*args, **kwargs)`."""
        self.body += spelling.callable_from(spelling.load_const(fn))
        for arg in (*args, *kwargs.values()):
            self.load(arg)
        self.body += spelling.call(len(args) + len(kwargs), tuple(kwargs))

    def call_with_sources(self, fn: Callable[..., Any], sources: Sequence[Source]) -> None:
        """Push `fn` of what the program holds at sources."""
        self.body += spelling.callable_from(spelling.load_const(fn))
        for source in sources:
            self.load_source(source)
        self.body += spelling.call(len(sources))

    def call_top(self, fn: Callable[..., Any], args: Sequence[Value] = ()) -> None:
        """Replace the top of the stack, x, by `fn(x, *args)`."""
        name = self._temporary()
        self.body += spelling.store_fast(name)
        self.body += spelling.callable_from(spelling.load_const(fn))
        self.body += spelling.load_fast_bound(name)
        for arg in args:
            self.load(arg)
        self.body += spelling.call(1 + len(args))

    def call_method_top(self, method: str, args: Sequence[Value] = ()) -> None:
        """Replace the top of the stack, x, by `x.method(*args)`."""
        self.body += spelling.load_method(method)
        for arg in args:
            self.load(arg)
        self.body += spelling.call(len(args))

    def do(self, fn: Callable[..., Any], args: Sequence[Value]) -> None:
        """Call `fn(*args)` for what it does."""
        self.call(fn, args)
        self.pop_top()

    def do_with_top(self, fn: Callable[..., Any], args: Sequence[Value]) -> None:
        """Call `fn(x, *args)`, where x is the top of the stack and stays there."""
        self.duplicate_top()
        self.call_top(fn, args)
        self.pop_top()

    # -- small instructions ---------------------------------------------------------------------

    build_list = _spelled(spelling.build_list)  # of so many values
    build_tuple = _spelled(spelling.build_tuple)
    build_map = _spelled(spelling.build_map)
    load_attr = _spelled(spelling.load_attr)
    store_attr = _spelled(spelling.store_attr)
    store_subscr = _spelled(spelling.store_subscr)
    pop_top = _spelled(spelling.pop_top)
    duplicate_top = _spelled(spelling.dup_top)
    load_null = _spelled(spelling.push_null)

    def store_global(self, scope: Any, name: str) -> None:
        """Pop a value into a global variable."""
        if scope.own:
            self.body += spelling.store_global(name)
            return
        self.load_const(scope.namespace)
        self.load_const(name)
        self.store_subscr()

    def delete_global(self, scope: Any, name: str) -> None:
        """Take a global variable away, which may not have been there before the frame."""
        self.load_const(scope.namespace)
        self.call_method_top("pop", [Constant(name), Constant(None)])
        self.pop_top()

    def _temporary(self) -> str:
        self._count += 1
        return f"___tmp_{self._count - 1}"


def _make_cell(*content: Any) -> Any:
    return CellType(*content)


def stores_temporary(instruction: Instruction) -> bool:
    return instruction.opname == "STORE_FAST" and str(instruction.argval).startswith("___tmp_")


def without_unused_temporaries(instructions: list[Instruction]) -> list[Instruction]:
    """Drop `COPY 1, STORE_FAST t` of temporaries that nobody loads."""
    loaded = {
        i.argval
        for i in instructions
        if i.opname in ("LOAD_FAST", "LOAD_FAST_CHECK") and str(i.argval).startswith("___tmp_")
    }
    kept: list[Instruction] = []
    for instruction in instructions:
        unused = stores_temporary(instruction) and instruction.argval not in loaded
        if unused and kept and kept[-1].opname == "COPY" and kept[-1].arg == 1:
            kept.pop()
            continue
        kept.append(instruction)
    return kept
