"""Calls whose only effect is on the world outside the program: warnings and log records.

In: a function and arguments that are known. Out: `DeferredCall`, an entry of the log of effects.
Invariant: the generated code makes the calls in the program's order, between the other effects;
the arguments cannot have changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class DeferredCall:
    """A call to be made when the compiled code has run. `arguments`: values that never change."""

    source = None

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self.function = function
        self.arguments = arguments

    def replay(self, writer: Any) -> None:
        writer.call(self.function, self.arguments)
        writer.pop_top()
