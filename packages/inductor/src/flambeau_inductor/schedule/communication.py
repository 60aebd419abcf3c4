"""Overlap of communication and computation: when collectives start, and when they are waited for.

In: steps that compute, in an order in which they may run. Out: the same steps, each collective
right after what it reads is there, each wait right before the first step that needs its result.
Invariant: collectives start in the order of the program, which is the same in all processes; no
step passes one that makes what it reads, or that may refuse to go on. What a collective reads is an
operand of its wait (`assemble`), so that nothing writes to it in between. What early starts and
late waits keep in memory is bounded (`Options.overlap_memory`): without that, all parameters of a
sharded model would be gathered before its first layer runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_inductor._torch_compat import COLLECTIVES, WAIT
from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.ir.steps import (
    Compute,
    computing,
    known_bytes,
    made_by,
    rescheduled,
    touched,
)
from flambeau_inductor.schedule.memory.order import may_refuse
from flambeau_inductor.schedule.memory.planning import live_at


def is_collective(step: Compute) -> bool:
    """Whether a step communicates, or waits for one that does."""
    return isinstance(step, Extern) and step.target.startswith(COLLECTIVES)


def _waits(step: Compute) -> bool:
    return isinstance(step, Extern) and step.target == WAIT


def overlap_communication(context: PassContext, program: Program) -> tuple[Program, int]:
    """Start collectives early and wait for them late."""
    steps = computing(program)
    if not any(map(is_collective, steps)):
        return program, 0
    return rescheduled(program, _Order(program, steps, context.options.overlap_memory).overlapped())


class _Order:
    """Steps in order, with the bytes that are live at each.

    share: how much more than the most of them overlap may take, as a share of that; in any case
    what the largest collective gives, so that one may be on its way while another's result is read.
    """

    def __init__(self, program: Program, steps: Sequence[Compute], share: float) -> None:
        self._sizes = known_bytes(program.buffers)
        self.steps = list(steps)
        self._live = live_at(steps, program.by_name, program.owned)
        self._own = {name for step in steps for name in made_by(step)}
        largest = max((self._made(step) for step in steps if is_collective(step)), default=0)
        peak = max(self._live)
        self._most = peak + max(int(share * peak), largest)

    def overlapped(self) -> Sequence[Compute]:
        """Each start as early, each wait as late, as its operands, its readers and memory allow."""
        starts = [step for step in self.steps if is_collective(step) and not _waits(step)]
        waits = [step for step in self.steps if _waits(step)]
        for step in starts:
            at, size = self.steps.index(step), self._made(step)
            place = at
            while place and not _keeps_back(self.steps[place - 1], step):
                if self._live[place - 1] + size > self._most:
                    break
                place -= 1
            self._move(at, place, size)
        for step in reversed(waits):
            at, size = self.steps.index(step), self._let_go(step, self.steps.index(step))
            place = at
            while place + 1 < len(self.steps) and not _depend(step, self.steps[place + 1]):
                if self._live[place + 1] + size > self._most:
                    break
                place += 1
            self._move(at, place, size)
        return self.steps

    def _move(self, at: int, to: int, size: int) -> None:
        """Move a step; so many bytes more are live at those that it passes."""
        if at == to:
            return
        self.steps.insert(to, self.steps.pop(at))
        self._live.pop(at)
        for passed in range(min(at, to), max(at, to)):
            self._live[passed] += size
        self._live.insert(to, max(self._live[max(to - 1, 0) : to + 1]))

    def _made(self, step: Compute) -> int:
        return sum(self._sizes.get(name, 0) for name in made_by(step))

    def _let_go(self, wait: Compute, at: int) -> int:
        """Bytes of what a collective reads that nobody needs after the wait."""
        later = {name for step in self.steps[at + 1 :] for name in touched(step)[0] | made_by(step)}
        gone = touched(wait)[0] - made_by(wait) - later
        return sum(self._sizes.get(name, 0) for name in gone & self._own)


def _keeps_back(earlier: Compute, start: Compute) -> bool:
    """Whether a collective cannot start before a step."""
    other = is_collective(earlier) and not _waits(earlier)
    return other or may_refuse(earlier) or _depend(earlier, start)


def _depend(earlier: Compute, later: Compute) -> bool:
    """Whether two steps touch a buffer that one of them makes or writes to."""
    made, also = made_by(earlier), made_by(later)
    seen, read = made | touched(earlier)[0], also | touched(later)[0]
    return not (made.isdisjoint(read) and seen.isdisjoint(also))
