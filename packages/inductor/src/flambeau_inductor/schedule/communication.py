"""Overlap of communication and computation: when collectives start, and when they are waited for.

In: steps that compute, in an order in which they may run. Out: the same steps, each collective
right after what it reads is there, each wait right before the first step that needs its result.
Invariant: collectives start in the order of the program, which is the same in all processes; no
step passes one that makes what it reads, or that may refuse to go on. What a collective reads is an
operand of its wait (`assemble`), so that nothing writes to it in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_inductor._torch_compat import COLLECTIVES, WAIT
from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.ir.steps import Compute, computing, made_by, rescheduled, touched
from flambeau_inductor.schedule.memory.order import may_refuse


def is_collective(step: Compute) -> bool:
    """Whether a step communicates, or waits for one that does."""
    return isinstance(step, Extern) and step.target.startswith(COLLECTIVES)


def _waits(step: Compute) -> bool:
    return isinstance(step, Extern) and step.target == WAIT


def overlap_communication(context: PassContext, program: Program) -> tuple[Program, int]:
    """Start collectives early and wait for them late."""
    return rescheduled(program, overlapped(computing(program)))


def overlapped(steps: Sequence[Compute]) -> Sequence[Compute]:
    """The steps in that order; themselves where none communicates."""
    if not any(map(is_collective, steps)):
        return steps
    found: list[Compute] = []
    for step in steps:
        place = len(found)
        if is_collective(step) and not _waits(step):
            while place and not _keeps_back(found[place - 1], step):
                place -= 1
        found.insert(place, step)
    for step in [step for step in reversed(found) if _waits(step)]:
        at = found.index(step)
        later = (k for k in range(at + 1, len(found)) if _depend(step, found[k]))
        found.insert(next(later, len(found)) - 1, found.pop(at))
    return found


def _keeps_back(earlier: Compute, start: Compute) -> bool:
    """Whether a collective cannot start before a step."""
    other = is_collective(earlier) and not _waits(earlier)
    return other or may_refuse(earlier) or _depend(earlier, start)


def _depend(earlier: Compute, later: Compute) -> bool:
    """Whether two steps touch a buffer that one of them makes or writes to."""
    made, also = made_by(earlier), made_by(later)
    seen, read = made | touched(earlier)[0], also | touched(later)[0]
    return not (made.isdisjoint(read) and seen.isdisjoint(also))
