"""What is registered for the operators of libraries that a graph calls.

In: an operator, as the program calls it. Out: a guard. Invariant: an entry holds no longer than the
kernels and the derivative that it was compiled for: a backend takes a composite operator apart and
bakes a derivative in. Torch's own operators are not asked.
"""

from __future__ import annotations

import operator
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Tracer


class _AsRegistered:
    """A guard's question: an operator has the kernels and the derivative that it had. Names are
    looked through only if there are more or fewer than when they were last."""

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
    """Guard what is registered for an operator that is called."""
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
