"""Writes of the backward pass to forward tensors: counters, amax histories.

What comes in: the stand-ins of a program's inputs, while its backward pass is recorded. What goes
out: for each input that the pass writes to, the value it has when the pass begins, an input of the
backward graph, and the value to copy into it when that graph has run.
Invariant: a write to anything else than an input that the caller has given is refused: nobody could
tell what it holds when a second backward pass begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import (
    current_value,
    is_functional,
    raise_version,
    replace_value,
    version,
)
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.intercept.inplace import WRITE_TO_LISTS
from flambeau_aot.joint.cotangents import Dependence
from flambeau_aot.joint.data_dependent import NoMemory
from flambeau_aot.joint.input_mutations import steps_from
from flambeau_aot.joint.nested import tensors_in
from flambeau_aot.joint.tracer import JointTracer
from flambeau_aot.refusals import refusal


class WrittenInBackward(Exception):
    """The backward pass writes to these inputs, by place; trace it again."""

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__(places)
        self.places = places


class LateWrites(NoMemory):
    """The writes of one backward pass; in force while it is recorded.

    known: the inputs that are known to be written to. ahead: the nodes of the forward part.
    """

    def __init__(
        self,
        tracer: JointTracer,
        stand_ins: Sequence[FunctionalInput],
        known: frozenset[int],
        ahead: set[fx.Node],
        dependence: Dependence | None,
    ) -> None:
        super().__init__()
        self.tracer = tracer
        self.stand_ins = stand_ins
        self.places = tuple(sorted(known))
        self.ahead = ahead
        self.dependence = dependence
        self.values = [tracer.fakes.like(stand_ins[place].value) for place in self.places]
        self.nodes = [
            tracer.placeholder(f"late_{place}", value)
            for place, value in zip(self.places, self.values, strict=True)
        ]
        self.before: list[torch.Tensor] = []
        self.counts: list[int] = []

    def begin(self) -> None:
        """Let the inputs that are written to be what they are when the pass begins."""
        for place, value in zip(self.places, self.values, strict=True):
            replace_value(self.stand_ins[place].wrapper, value)
        self.before = [current_value(item.wrapper) for item in self.stand_ins]
        self.counts = [version(self.stand_ins[place].wrapper) for place in self.places]

    def results(self) -> list[fx.Node]:
        """The new values of those inputs. Raises WrittenInBackward where there are others."""
        found = {
            place
            for place, (item, value) in enumerate(zip(self.stand_ins, self.before, strict=True))
            if current_value(item.wrapper) is not value
        }
        if not found <= {*self.places}:
            raise WrittenInBackward(frozenset({*found, *self.places}))
        return [
            self.tracer.node_of(current_value(self.stand_ins[place].wrapper))
            for place in self.places
        ]

    def counted(self) -> tuple[bool, ...]:
        """For each of those inputs, whether its version counter noticed."""
        return tuple(
            version(self.stand_ins[place].wrapper) != count
            for place, count in zip(self.places, self.counts, strict=True)
        )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        targets = [x for x in tensors_in((args, kwargs or {})) if is_functional(x)]
        counts = [version(target) for target in targets]
        roots = [self._root(target) for target in targets]
        result = super().__torch_function__(func, types, args, kwargs)
        if getattr(func, "__name__", "") in WRITE_TO_LISTS:
            # functionalization counts no writes to lists
            for target in tensors_in(args[0]):
                raise_version(target)
        for target, count, root in zip(targets, counts, roots, strict=True):
            if version(target) != count:
                self._written(root)
        return result

    def _root(self, target: torch.Tensor) -> torch.Tensor:
        return steps_from(self.tracer, current_value(target), None)[0]

    def _written(self, root: torch.Tensor) -> None:
        node = self.tracer.node_of(root)
        of_input = any(root is value for value in self.before)
        if node in self.ahead and not of_input:
            raise refusal("AO0137")
        if (of_input or node in self.nodes) and self.dependence is not None:
            if not self.dependence.inside_of_all():
                raise refusal("AO0138")
