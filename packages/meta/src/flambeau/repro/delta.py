"""Delta debugging: the search for a smaller thing that fails in the same way.

In: what fails, a test, moves. Out: the smallest that was found. Invariant: all that is kept was
itself seen to fail; the search ends after a round of moves of which none helped.

Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
F = TypeVar("F")


class Enough(Exception):
    """As many candidates were tried as may be."""


@dataclass
class Search(Generic[T, F]):
    """The smallest so far, how it fails, and how many were tried, of `most`.

    test: how a candidate fails; None where it does not, or in another way.
    """

    best: T
    found: F
    test: Callable[[T], F | None]
    most: int
    tests: int = 1

    def takes(self, candidate: T) -> bool:
        """Try a candidate; one that fails is the best from now on. Raises Enough."""
        if self.tests >= self.most:
            raise Enough
        self.tests += 1
        found = self.test(candidate)
        if found is not None:
            self.best, self.found = candidate, found
        return found is not None

    def run(self, moves: Sequence[Callable[[Search[T, F]], None]]) -> None:
        """Make all moves, again and again until none of them helps."""
        before = None
        with suppress(Enough):
            while self.best is not before:
                before = self.best
                for move in moves:
                    move(self)
