"""The source type: one node of an access path.

In: a frame's arguments, closure, globals and builtins, as a `Scope`. Out: `Source`, the node that
all others extend, and `load`, which reads along a path. Invariant: to read a source changes
nothing, and any exception means that nothing is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, ClassVar


@dataclass(frozen=True)
class Scope:
    """What a frame is entered with: arguments, contents of closure cells, and the two dicts.
    `cells` are the closure's cells themselves."""

    locals: Mapping[str, Any]
    free: Mapping[str, Any]
    globals: Mapping[str, Any]
    builtins: Mapping[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        code: CodeType,
        func: FunctionType,
        arguments: Mapping[str, Any],
        free: Mapping[str, Any],
    ) -> Scope:
        """Of a frame that runs a function's code."""
        cells = dict(zip(code.co_freevars, func.__closure__ or ()))
        builtins: dict[str, Any] = func.__builtins__  # type: ignore[attr-defined]
        return cls(arguments, free, func.__globals__, builtins, cells)


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


@dataclass(frozen=True)
class Derived(Source):
    """A step from another source."""

    base: Source

    @property
    def parent(self) -> Source:
        return self.base


def load(source: Source, scope: Scope) -> Any:
    """The value `source` names in `scope`. Raises whatever the access raises."""
    value: Any = None
    for node in source.path():
        value = node.read(scope, value)
    return value
