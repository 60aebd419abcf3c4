"""The source type, and its roots: locals, closure, globals, builtins, constants.

In: a frame's arguments, closure, globals and builtins, as a `Scope`. Out: `Source`, the node that
all others extend, and `load`, which reads along a path. Invariant: to read a source changes
nothing, and any exception means that nothing is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar, NamedTuple


@dataclass(frozen=True)
class Scope:
    """What a frame is entered with: arguments, contents of closure cells, and the two dicts.
    `cells` are the closure's cells themselves."""

    locals: Mapping[str, Any]
    free: Mapping[str, Any]
    globals: Mapping[str, Any]
    builtins: Mapping[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)


class FrameCall(NamedTuple):
    """A frame that is about to run: its code, function, arguments and enclosed variables."""

    code: CodeType
    func: Any  # a function, whose `__builtins__` the stubs lack
    arguments: Mapping[str, Any]
    free: Mapping[str, Any]

    def scope(self) -> Scope:
        cells = dict(zip(self.code.co_freevars, self.func.__closure__ or ()))
        func = self.func
        return Scope(self.arguments, self.free, func.__globals__, func.__builtins__, cells)


@dataclass(frozen=True)
class Source:
    """A node of the tree. Roots have no `parent`, a `scheme` that says what they are, and may be
    `of_frame`: what the frame itself is entered with."""

    scheme: ClassVar[str] = ""
    of_frame: ClassVar[bool] = False

    @property
    def parent(self) -> Source | None:
        return None

    def name(self) -> str:
        raise NotImplementedError

    def read(self, scope: Scope, value: Any) -> Any:
        """The value of this node, given its parent's; any exception means 'not there'."""
        raise NotImplementedError

    def path(self) -> tuple[Source, ...]:
        """The nodes from the root to this one."""
        nodes: list[Source] = []
        node: Source | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return tuple(reversed(nodes))

    def root(self) -> Source:
        return self.path()[0]

    def is_local(self) -> bool:
        """Whether the path starts at an argument or a closure cell of the frame."""
        return self.root().of_frame

    def plain(self) -> str:
        """The path as the user would write it: no marks of where its root lives."""
        root = self.root()
        return self.name().replace(root.name(), root.short(), 1)

    def short(self) -> str:
        """Of a root: its name without the mark of where it lives."""
        return self.name()

    def __str__(self) -> str:
        return f"{self.root().scheme} {self.plain()!r}"


def load(source: Source, scope: Scope) -> Any:
    """The value `source` names in `scope`. Raises whatever the access raises."""
    value: Any = None
    for node in source.path():
        value = node.read(scope, value)
    return value


@dataclass(frozen=True)
class Named(Source):
    """A name that the frame's code can use: `table` of the scope has it, `mark` stands for that."""

    variable: str
    mark: ClassVar[str] = ""
    table: ClassVar[str] = ""

    def name(self) -> str:
        return f"{self.mark}[{self.variable!r}]"

    def short(self) -> str:
        return self.variable

    def read(self, scope: Scope, value: Any) -> Any:
        return getattr(scope, self.table)[self.variable]


class Local(Named):
    """An argument of the frame, by its name."""

    scheme, mark, table, of_frame = "local", "L", "locals", True


class ClosureSource(Named):
    """The content of a closure cell of the frame's own function."""

    scheme, mark, table, of_frame = "free", "F", "free", True


class FreeCell(Named):
    """A closure cell of the frame's own function, full or empty: not what it holds."""

    scheme, mark, table, of_frame = "cell", "C", "cells", True


class Global(Named):
    """A name in the dict of the frame's own module."""

    scheme, mark, table = "global", "G", "globals"


class Builtin(Named):
    """A name in the frame's builtins. That no global hides it is another guard's matter."""

    scheme, mark, table = "builtin", "B", "builtins"


@dataclass(frozen=True, eq=False)
class ConstantSource(Source):
    """An object that the compiled entry itself keeps alive: it needs no guard to be reached."""

    object: Any = field(repr=False)
    label: str = "held"
    scheme: ClassVar[str] = "held"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantSource) and other.object is self.object

    def __hash__(self) -> int:
        return hash((ConstantSource, id(self.object)))

    def name(self) -> str:
        return f"<{self.label}>"

    def read(self, scope: Scope, value: Any) -> Any:
        return self.object


@dataclass(frozen=True)
class SymbolExprSource(Source):
    """A number that Python computes of others: the value of a symbol. Guards never read it, but
    what it is computed of."""

    function: Callable[..., Any]
    arguments: tuple[Source, ...]
    scheme: ClassVar[str] = "number"

    def name(self) -> str:
        return f"{self.function.__name__}({', '.join(a.name() for a in self.arguments)})"

    def read(self, scope: Scope, value: Any) -> Any:
        return self.function(*(load(argument, scope) for argument in self.arguments))

    def count(self) -> int:
        """How many numbers it takes to compute it."""
        return 1 + sum(a.count() if isinstance(a, SymbolExprSource) else 1 for a in self.arguments)

    def leaves(self) -> frozenset[Source]:
        """What it is computed of, in the end."""
        parts = (a.leaves() if isinstance(a, SymbolExprSource) else {a} for a in self.arguments)
        return frozenset().union(*parts)


@dataclass(frozen=True)
class CallResultSource(Source):
    """What `make` gives for an object and numbers just before the graph is called. To read it does
    something (a generator moves on): no guard does, and generated code does so once."""

    of: Source
    make: Callable[..., Any]
    numbers: tuple[Source, ...]
    verb: str
    step: int
    scheme: ClassVar[str] = "made"

    def name(self) -> str:
        return f"{self.verb}({self.of.name()}, {self.step})"

    def read(self, scope: Scope, value: Any) -> Any:
        raise LookupError(self.name())
