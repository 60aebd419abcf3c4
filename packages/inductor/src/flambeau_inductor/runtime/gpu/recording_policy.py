"""Policy of CUDA graph recordings: launch-bound detection, and static inputs.

In: measured runs (seconds of queueing, and between two events of the device); the inputs of plain
calls. Out: a verdict, or none yet; whether an input stays where it is. Invariant: other work only
lengthens a measurement, so the shortest of each kind counts, and a verdict against a recording is
never the last one; an input that moved before a recording had served long is not static, but for
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flambeau_inductor.runtime.gpu.stream_capture import CudaWatch

MEASURED_AT_ONCE = 3
"""Runs that are measured first. Later ones are when their number has doubled."""
DOMINATES = 0.3
"""Share of a run's time on the device that queueing it has to take: the processor has guards,
other graphs and the program's own work to do in the same time."""


class Launching:
    """The measurements of one compiled graph; `runs` counts those that might have been measured."""

    def __init__(self) -> None:
        self.runs = 0
        self.queueing = self.device = math.inf
        self._watch: CudaWatch | None = None

    def dominates(self) -> bool:
        """Whether launching dominates, by all runs that have ended."""
        taken = None if self._watch is None else self._watch.seconds()
        if taken is not None:
            self._watch = None
            self.queueing = min(self.queueing, taken[0])
            self.device = min(self.device, taken[1])
        return self.queueing < math.inf and self.queueing >= DOMINATES * self.device

    def due(self) -> bool:
        """Whether the run that comes is to be measured: none is while the last has not ended."""
        self.runs += 1
        often = self.runs <= MEASURED_AT_ONCE or self.runs & (self.runs - 1) == 0
        return often and self._watch is None

    def measure(self, watch: CudaWatch) -> None:
        """`watch` saw a run begin; its seconds are read later."""
        self._watch = watch

    @property
    def undecided(self) -> bool:
        """Whether the first measurements are still to come."""
        return self.runs < MEASURED_AT_ONCE


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

    def elsewhere(self, positions: Iterable[int], args: Sequence[Any]) -> bool:
        """Notes where these inputs are; whether they were there when it was last noted."""
        there = {position: args[position].data_ptr() for position in positions}
        stayed = there.items() <= self._seen.items()
        self._seen.update(there)
        return stayed

    def moved(self, positions: Iterable[int]) -> None:
        self._moved.update(positions)

    def __call__(self, position: int, value: torch.Tensor) -> bool:
        if position in self._static:
            return True
        if position in self._moved or self._seen.get(position) != value.data_ptr():
            return False
        return position in self._updated or value.nbytes >= self._least
