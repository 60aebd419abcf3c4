"""Inlined frames at a graph break, as resume functions.

In: the frames below the outermost, which is the one under capture. Out: a `ChainPlan`, which
generated code gets two things at run time: a callable that runs the unsupported instruction in
its frame, within the handlers of all frames around it, and one that goes on in all of them.
Invariant: the first returns `Completed`, or what the outermost inlined frame returns because a
handler in one of them caught an exception.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.flow import remove_dead_code
from flambeau_capture.bytecode.instruction import placed
from flambeau_capture.emit.level import (
    Host,
    Level,
    after_call,
    following,
    native,
    places,
    resumption,
    waits,
)
from flambeau_capture.emit.names import EntryNames
from flambeau_capture.emit.resume import (
    INSTEAD,
    Goal,
    Places,
    StackSlot,
    as_function,
    leave_stack,
    left,
    push_stack,
    stack_names,
)
from flambeau_capture.resume_runtime import CALLEE, Completed, Continue, is_completed
from flambeau_capture.values.base import Value
from flambeau_capture.values.containers.sequences import TupleValue

DONE = "___done"

# What a frame needs to go on: its cells, variables, stack, and what its instruction pushes.
Parts = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


Maker = Callable[[tuple[Any, ...]], Any]


def _maker(code: CodeType, namespace: dict[str, Any]) -> Maker:
    """Makes a function of fixed code, again for each set of cells."""
    if code.co_freevars:
        return lambda cells: types.FunctionType(code, namespace, code.co_name, None, cells)
    function = types.FunctionType(code, namespace, code.co_name)
    return lambda cells: function


@dataclass(frozen=True)
class ChainPlan:
    """One native function a frame, and one resume function; the innermost has one for each road.
    `inside`: where all these frames are."""

    natives: tuple[Maker, ...]
    resumptions: tuple[Maker, ...]
    roads: tuple[Maker, ...]
    inside: Places

    def run(self, parts: tuple[Parts, ...]) -> Any:
        """A callable that does the instruction."""
        called: tuple[Any, ...] = ()
        for maker, (cells, variables, stack, instead) in zip(self.natives[::-1], parts[::-1]):
            called = (functools.partial(maker(cells), *variables, *stack, *instead, *called),)
        return called[0]

    def resume(self, parts: tuple[Parts, ...], done: Completed) -> Any:
        """A callable that goes on in all the frames, the innermost first."""
        cells, variables, _, _ = parts[-1]
        going = Continue(self.roads[done.road](cells), *variables, *done.values)
        for maker, (cells, variables, stack, instead) in zip(self.resumptions[::-1], parts[-2::-1]):
            going = Continue(maker(cells), *variables, *stack, *instead, going)
        return going


def make_plan(levels: Sequence[Level], names: EntryNames) -> ChainPlan:
    """`levels`: the inlined frames, outermost first."""
    natives, resumptions = [], []
    for index, level in enumerate(levels[:-1]):
        code = _waiting_code(level, names, any(one.region() for one in levels[index + 1 :]))
        natives.append(_maker(code, level.namespace))
        goal = after_call(level, names, places(levels[index + 1 :], names))
        known = resumption(level, names, goal, level.live())
        resumptions.append(_maker(known.code, level.namespace))
    last = levels[-1]
    natives.append(_maker(_stopped_code(last, names), last.namespace))
    roads = [
        resumption(last, names, Goal(last.body, road.target, road.slots), last.live())
        for road in native(last).roads
    ]
    return ChainPlan(
        tuple(natives),
        tuple(resumptions),
        tuple(_maker(known.code, last.namespace) for known in roads),
        places(levels, names),
    )


def parts_of(level: Level) -> TupleValue:
    """A frame's `Parts`, as a value for generated code to build."""
    code = level.body.code
    cells: list[Value] = [level.cells[name] for name in (*code.co_freevars, *code.co_cellvars)]
    variables = [level.variables[name] for name in level.live()]
    assert all(value is not None for value in variables)
    instead = [] if level.instead is None else [level.instead]
    groups = (cells, variables, level.passed(), instead)
    return TupleValue([TupleValue(group) for group in groups])  # type: ignore[arg-type]


def _function(host: Host, name: str, parameters: tuple[str, ...]) -> CodeType:
    code = host.level.body.code
    free = (*code.co_freevars, *code.co_cellvars)
    pushed, regions = push_stack(host.level.slots)
    start = placed([*spelling.prefix((), free), *pushed], host.level.instruction.positions)
    whole = CodeBody([*start, *host.instructions], code, [*host.regions, *regions])
    function = as_function(remove_dead_code(whole), parameters, name)
    host.names.run_natively(function)
    return function


def _stopped_code(level: Level, names: EntryNames) -> CodeType:
    """Runs the instruction and answers `Completed`."""
    host = Host(level, names)
    done = native(level)
    host.instructions += done.instructions
    for number, road in enumerate(done.roads):
        host.instructions += road.start
        values = left(road.slots)
        host.instructions += leave_stack(road.slots)
        host.instructions += spelling.callable_from(spelling.load_const(Completed))
        host.instructions += spelling.load_const(number)
        host.instructions += [one for name in values for one in spelling.take_fast(name)]
        host.instructions += spelling.build_tuple(len(values))
        host.instructions += [*spelling.call(2), *spelling.return_value()]
    host.cover(done.instructions)
    parameters = (*level.live(), *stack_names(level.slots))
    return _function(host, level.body.code.co_name, parameters)


def _waiting_code(level: Level, names: EntryNames, may_return: bool) -> CodeType:
    """Calls the next frame's; goes on here if that one has returned to us."""
    host = Host(level, names)
    # it may hold what the instruction raises, and this frame is part of where that was raised
    call = [*spelling.callable_from(spelling.take_fast(CALLEE)), *spelling.call(0)]
    placed(call, level.instruction.positions)
    host.instructions += call
    host.instructions += spelling.store_fast(DONE)
    if may_return:
        returned(host)
    if StackSlot.ERROR in level.slots:
        host.instructions += leave_stack(level.slots)
    host.instructions += [*spelling.load_fast_bound(DONE), *spelling.return_value()]
    host.cover(call)
    instead = (INSTEAD,) if level.instead is not None else ()
    parameters = (*level.live(), *stack_names(level.slots), *instead, CALLEE)
    return _function(host, level.body.code.co_name, parameters)


def returned(host: Host, *ended: str) -> None:
    """Go on in this frame if what the next one gave back is its result; else fall through.

    ended: variables that are needed no more then."""
    level = host.level
    completed = spelling.nop()
    host.instructions += [
        *spelling.callable_from(spelling.load_const(is_completed)),
        *spelling.load_fast_bound(DONE),
        *spelling.call(1),
        *spelling.jump_if("true", completed[0]),
    ]
    host.instructions += spelling.take_fast(DONE if level.instead is None else INSTEAD)
    host.instructions += [one for name in ended for one in spelling.delete_fast(name)]
    body, call = waits(level, host.names)
    host.go_on(Goal(body, following(body, call), (*level.slots, StackSlot.VALUE)))
    host.instructions += completed


__all__ = ["DONE", "ChainPlan", "make_plan", "parts_of", "returned"]
