"""Values that show their text at a prompt, as the last value of a notebook's cell, and in logs.

In: a class with `__str__`. Out: `__repr__` and `_repr_html_` of the same text. Invariant: what is
shown is what `print` prints; no markup of a program's text reaches a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def counted(number: int, what: str, several: str = "") -> str:
    """`1 graph`, `2 graphs`; `several` where that is not the one with an s."""
    return f"{number} {what if number == 1 else several or what + 's'}"


def as_table(rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Rows of cells in columns: the first `texts` of them to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        [
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    )
    return "\n".join("  ".join(line).rstrip() for line in lines)


class Shown:
    """Base of values whose text is all that a reader wants of them."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        # notebooks wrap lines of a plain one, and a wide table with them
        return f'<pre style="white-space: pre; overflow-x: auto">{escape(str(self))}</pre>'


class ShownText(Shown, str):
    """A text that shows its lines as they are."""

    def __str__(self) -> str:
        return str.__str__(self)
