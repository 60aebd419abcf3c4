"""Registrations of operators: kernels and derivatives, guarded as they were.

In: the target of a call. Out: a guard, if the operator is of another library than torch.
Invariant: an operator whose registrations change after a compile is captured anew.
"""

from __future__ import annotations

import operator
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Tracer


class _AsRegistered:
    """Guard: an operator has the kernels and the derivative that it had."""

    def __init__(self, name: str, registered: set[str]) -> None:
        self.name = name
        self.count = len(registered)
        self.kernels = compat.kernels_among(registered, name)
        self.derivative = compat.derivative_of(name)

    def __call__(self, registered: set[str]) -> bool:
        if len(registered) != self.count:
            if compat.kernels_among(registered, self.name) != self.kernels:
                return False
            self.count = len(registered)
        now, then = compat.derivative_of(self.name), self.derivative
        return len(now) == len(then) and all(map(operator.is_, now, then))


def guard_registrations(tx: Tracer, target: Any) -> None:
    """Guard what is registered for an operator of another library than torch."""
    name = compat.library_operator(target)
    if name is not None:
        registered = compat.registered_kernels()
        question = _AsRegistered(name, registered)
        place = ConstantSource(registered, f"what is registered for {name}")
        tx.guard(place, "CALL", question, "is as it was")


unguarded(
    "kernels of torch's own operators",
    "nobody replaces them; what is registered for operators of other libraries is guarded",
)
