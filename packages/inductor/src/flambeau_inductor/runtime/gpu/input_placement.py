"""Placement of a recording's inputs: static, copied, updated in place.

In: the inputs of plain calls, as they come. Out: whether one may be expected where it is.
Invariant: an input that was elsewhere at one call is not expected to stay, but for parameters; the
address of one that is expected is checked at each replay all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch


class Steady:
    """Inputs that stay where they are: `static` ones, and, in a graph that updates inputs, those it
    updates and large ones, as parameters, their gradients and an optimizer's state do. Those of
    less than `least` bytes are copied, unless updated: that costs less than recording anew."""

    def __init__(
        self, static: Iterable[int], updates: Iterable[tuple[int, int]], least: int
    ) -> None:
        self._least = least
        self.written: dict[int, int] = {}
        self._static = frozenset(static)
        self._updates = tuple(updates)
        self._updated: frozenset[int] = frozenset()
        self._seen: dict[int, int] = {}
        self._moved: set[int] = set()

    def before(self, args: Sequence[Any]) -> Mapping[int, Any]:
        """Notes where inputs are; gives those that may be updated."""
        for position, value in enumerate(args) if self._updates else ():
            if isinstance(value, torch.Tensor):
                address = value.data_ptr()
                if self._seen.setdefault(position, address) != address:
                    self._moved.add(position)
        return {place: args[place] for _, place in self._updates}

    def after(self, given: Mapping[int, Any], made: Sequence[Any]) -> None:
        """Notes which results are inputs that were written where they are: result, input."""
        self.written = {out: place for out, place in self._updates if made[out] is given[place]}
        self._updated = frozenset(self.written.values())

    def moved(self, position: int) -> None:
        """An input was elsewhere than a recording expects it."""
        self._moved.add(position)

    def __call__(self, position: int, value: torch.Tensor) -> bool:
        """Whether an input is expected where it is now."""
        if position in self._static:
            return True
        if position in self._moved or self._seen.get(position) != value.data_ptr():
            return False
        return position in self._updated or value.nbytes >= self._least
