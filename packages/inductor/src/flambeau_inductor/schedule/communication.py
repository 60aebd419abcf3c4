"""Overlap of communication and computation: when collectives start, and when they are waited for.

In: steps that compute, in an order in which they may run. Out: the same steps, each collective
right after what it reads is there, each wait right before the first step that needs its result.
What brings arguments of the graph into the form that a collective takes (a cast, shards side by
side) goes with it, or the collective would have to wait for it.
Invariant: collectives start in the order of the program, which is the same in all processes; no
step passes one that makes what it reads, or that may refuse to go on. What a collective reads is an
operand of its wait (`assemble`), so that nothing writes to it in between. No wait passes a step
that makes the new value of an input: it would need memory of its own until the wait is over. What
early starts and late waits keep in memory is bounded (`Options.overlap_memory`): without that, all
parameters of a sharded model would be gathered before its first layer runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from flambeau_inductor.schedule.memory.order import keeps_order, may_refuse
from flambeau_inductor.schedule.memory.planning import live_at

_Touched = tuple[frozenset[str], frozenset[str]]


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
    what the largest collective gives, and what goes with it, so that one may be on its way while
    another's result is read.
    """

    def __init__(self, program: Program, steps: Sequence[Compute], share: float) -> None:
        self._sizes = known_bytes(program.buffers)
        self.steps = list(steps)
        self._live = live_at(steps, program.by_name, program.owned)
        self._own = {name for step in steps for name in made_by(step)}
        self._updates = frozenset(program.owned.updates)
        self._touched = {id(step): _touches(step) for step in steps}
        self._users: dict[str, list[Compute]] = {}
        for step in steps:
            for name in self._touches(step)[0]:
                self._users.setdefault(name, []).append(step)
        starts = [step for step in steps if is_collective(step) and not _waits(step)]
        self._walls = {*map(id, starts), *map(id, filter(may_refuse, steps))}
        self._starts = [[*self._prepares(start), start] for start in starts]
        largest = max((sum(self._new_bytes(moved)) for moved in self._starts), default=0)
        peak = max(self._live)
        self._most = peak + max(int(share * peak), largest)

    def overlapped(self) -> Sequence[Compute]:
        """Each start as early, each wait as late, as its operands, its readers and memory allow."""
        waits = [step for step in self.steps if _waits(step)]
        for moved in self._starts:
            start, sizes = moved[-1], self._new_bytes(moved)
            for before, step in enumerate(reversed(moved[:-1]), 1):
                self._move(self._at(step), self._at(start) - before, -sizes[-1 - before])
            place = first = self._at(moved[0])
            size, together = sum(sizes), _together(map(self._touches, moved))
            while place and not self._keep_back(self.steps[place - 1], together):
                if self._live[place - 1] + size > self._most:
                    break
                place -= 1
            for number in range(len(moved)):
                self._move(first + number, place + number, sizes[number])
        for step in reversed(waits):
            at = place = self._at(step)
            size = self._let_go(step, at)
            while place + 1 < len(self.steps) and not self._goes_before(
                step, self.steps[place + 1]
            ):
                if self._live[place + 1] + size > self._most:
                    break
                place += 1
            self._move(at, place, size)
        return self.steps

    def _at(self, step: Compute) -> int:
        return next(at for at, each in enumerate(self.steps) if each is step)

    def _prepares(self, start: Compute) -> list[Compute]:
        """The steps, in order, that make what a collective reads, of arguments of the graph, and
        whose results nobody else reads; none, if that is not all that makes it."""
        found: dict[int, Compute] = {}
        waiting = [start]
        while waiting:
            for name in self._touches(waiting.pop())[0] & self._own:
                for step in self._users[name]:
                    if step is start or id(step) in found or _waits(step):
                        continue
                    if name not in made_by(step) or is_collective(step) or keeps_order(step):
                        return []
                    found[id(step)] = step
                    waiting.append(step)
        for step in found.values():
            for name in made_by(step):
                others = (each for each in self._users[name] if id(each) not in found)
                if name not in self._own or not all(e is start or _waits(e) for e in others):
                    return []
        made = [step for step in self.steps if id(step) in found]
        if made:
            between = self.steps[self._at(made[0]) : self._at(start)]
            rest = [step for step in between if id(step) not in found]
            moved = _together(map(self._touches, made))
            if any(_depend(moved, self._touches(other)) for other in rest):
                return []
        return made

    def _move(self, at: int, to: int, size: int) -> None:
        """Move a step; so many bytes more are live at those that it passes."""
        if at == to:
            return
        self.steps.insert(to, self.steps.pop(at))
        self._live.pop(at)
        for passed in range(min(at, to), max(at, to)):
            self._live[passed] += size
        self._live.insert(to, max(self._live[max(to - 1, 0) : to + 1]))

    def _new_bytes(self, steps: Sequence[Compute]) -> list[int]:
        """What each makes that none before it does: several may write to one buffer."""
        found, known = list[int](), frozenset[str]()
        for step in steps:
            found.append(self._bytes(made_by(step) - known))
            known |= made_by(step)
        return found

    def _bytes(self, names: Iterable[str]) -> int:
        return sum(self._sizes.get(name, 0) for name in names)

    def _let_go(self, wait: Compute, at: int) -> int:
        """Bytes of what a collective reads that nobody needs after the wait."""
        later = {*map(id, self.steps[at + 1 :])}
        gone = (touched(wait)[0] - made_by(wait)) & self._own
        return self._bytes(n for n in gone if later.isdisjoint(map(id, self._users[n])))

    def _touches(self, step: Compute) -> _Touched:
        return self._touched[id(step)]

    def _keep_back(self, earlier: Compute, moved: _Touched) -> bool:
        """Whether a collective, or what goes with it, cannot start before a step."""
        return id(earlier) in self._walls or _depend(self._touches(earlier), moved)

    def _goes_before(self, wait: Compute, later: Compute) -> bool:
        """Whether a wait, which may fail, has to come before a step: one that reads its result, or
        makes what an input is to be, and then finds nothing but memory of its own."""
        seen = self._touches(later)
        return _depend(self._touches(wait), seen) or not self._updates.isdisjoint(seen[1])


def _depend(earlier: _Touched, later: _Touched) -> bool:
    """Whether two of them touch a buffer that one of them makes or writes to."""
    return not (earlier[1].isdisjoint(later[0]) and earlier[0].isdisjoint(later[1]))


def _touches(step: Compute) -> _Touched:
    """The buffers that a step reads or makes, and those that it makes or writes to."""
    made = made_by(step)
    return made | touched(step)[0], made


def _together(steps: Iterable[_Touched]) -> _Touched:
    seen, made = zip(*steps, strict=True)
    return frozenset().union(*seen), frozenset().union(*made)
