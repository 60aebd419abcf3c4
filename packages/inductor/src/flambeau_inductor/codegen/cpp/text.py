"""Indented lines of C++.

In: lines and blocks. Out: text. Invariant: braces opened through `block` are closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SourceLines:
    """A growing list of lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def __call__(self, line: str) -> None:
        """Add a line; preprocessor lines start in the first column."""
        self.lines.append(line if line.startswith("#") else "  " * self._depth + line)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {`, the lines added inside, `tail`."""
        self(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self(tail)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"
