"""Root sources: frame variables, constants, computed numbers.

In: a name, an object, other sources. Out: the sources without a parent. Invariant: only
`ConstantSource` keeps an object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flambeau_capture.source.base import Scope, Source, load


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


@dataclass(frozen=True)
class Local(Named):
    """An argument of the frame, by its name."""

    scheme: ClassVar[str] = "local"
    mark: ClassVar[str] = "L"
    of_frame: ClassVar[bool] = True
    table: ClassVar[str] = "locals"


@dataclass(frozen=True)
class ClosureSource(Named):
    """The content of a closure cell of the frame's own function."""

    scheme: ClassVar[str] = "free"
    mark: ClassVar[str] = "F"
    of_frame: ClassVar[bool] = True
    table: ClassVar[str] = "free"


@dataclass(frozen=True)
class FreeCell(Named):
    """A closure cell of the frame's own function, full or empty: not what it holds."""

    scheme: ClassVar[str] = "cell"
    mark: ClassVar[str] = "C"
    of_frame: ClassVar[bool] = True
    table: ClassVar[str] = "cells"


@dataclass(frozen=True)
class Global(Named):
    """A name in the dict of the frame's own module."""

    scheme: ClassVar[str] = "global"
    mark: ClassVar[str] = "G"
    table: ClassVar[str] = "globals"


@dataclass(frozen=True)
class Builtin(Named):
    """A name in the frame's builtins. That no global hides it is another guard's matter."""

    scheme: ClassVar[str] = "builtin"
    mark: ClassVar[str] = "B"
    table: ClassVar[str] = "builtins"


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
