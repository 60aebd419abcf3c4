"""Inlined frames at a graph break, as resume functions.

In: the frames below the outermost, which is the one under capture. Out: a `ChainPlan`, of which
generated code gets a `Continue` that runs the unsupported instruction in its frame, within the
handlers of all frames around it. Invariant: it returns `Completed`, with what goes on in all of
them, or what the outermost inlined frame returns because a handler in one of them caught an
exception; nothing but these frames holds what is theirs meanwhile.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.flow import remove_dead_code
from flambeau_capture.bytecode.instruction import Instruction, placed
from flambeau_capture.emit.level import Host, Level, after_call, following, native, places, waits
from flambeau_capture.emit.names import EntryNames
from flambeau_capture.emit.resume import (
    INSTEAD,
    Goal,
    Places,
    StackSlot,
    as_function,
    push_stack,
    stack_names,
)
from flambeau_capture.resume_runtime import CALLEE, Completed, Continue, drive, is_completed
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
    """One native function a frame, outermost first. `inside`: where all these frames are."""

    natives: tuple[Maker, ...]
    inside: Places

    def run(self, parts: tuple[Parts, ...]) -> Continue:
        """What does the instruction."""
        called: tuple[Continue, ...] = ()
        for maker, (cells, variables, stack, instead) in zip(self.natives[::-1], parts[::-1]):
            called = (Continue(maker(cells), *variables, *stack, *instead, *called),)
        return called[0]


def make_plan(levels: Sequence[Level], names: EntryNames) -> ChainPlan:
    """`levels`: the inlined frames, outermost first."""
    codes = [_waiting_code(levels[index:], names) for index in range(len(levels) - 1)]
    codes.append(_stopped_code(levels[-1], names))
    natives = (_maker(code, level.namespace) for code, level in zip(codes, levels, strict=True))
    return ChainPlan(tuple(natives), places(levels, names))


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
    for road in done.roads:
        host.instructions += road.start
        host.going(Goal(level.body, road.target, road.slots), Completed, level.live())
        host.instructions += spelling.return_value()
    host.cover(done.instructions)
    parameters = (*level.live(), *stack_names(level.slots))
    return _function(host, level.body.code.co_name, parameters)


def _waiting_code(levels: Sequence[Level], names: EntryNames) -> CodeType:
    """Calls the next frame's; goes on here if that one has returned to us."""
    level, *inner = levels
    host = Host(level, names)
    call = run_inner(host, spelling.take_fast(CALLEE), any(one.region() for one in inner))
    host.going(after_call(level, names, places(inner, names)), Completed, level.live())
    host.instructions += spelling.return_value()
    host.cover(call)
    instead = (INSTEAD,) if level.instead is not None else ()
    parameters = (*level.live(), *stack_names(level.slots), *instead, CALLEE)
    return _function(host, level.body.code.co_name, parameters)


def run_inner(host: Host, inner: Sequence[Instruction], may_return: bool) -> Sequence[Instruction]:
    """Run the inner frames, a `Continue` that is loaded; what they go on with is CALLEE then. The
    call is for the frame to cover."""
    call = [*spelling.callable_from(spelling.load_const(drive)), *inner, *spelling.call(1)]
    placed(call, host.level.instruction.positions)
    host.instructions += [*call, *spelling.store_fast(DONE)]
    if may_return:
        _returned(host)
    host.instructions += spelling.take_fast(DONE)
    host.instructions += [*spelling.load_attr("going"), *spelling.store_fast(CALLEE)]
    return call


def _returned(host: Host) -> None:
    """Go on in this frame if what the next one gave back is its result; else fall through."""
    level = host.level
    completed = spelling.nop()
    host.instructions += [
        *spelling.callable_from(spelling.load_const(is_completed)),
        *spelling.load_fast_bound(DONE),
        *spelling.call(1),
        *spelling.jump_if("true", completed[0]),
    ]
    host.instructions += spelling.take_fast(DONE if level.instead is None else INSTEAD)
    body, call = waits(level, host.names)
    host.go_on(Goal(body, following(body, call), (*level.slots, StackSlot.VALUE)))
    host.instructions += completed


__all__ = ["ChainPlan", "make_plan", "parts_of", "run_inner"]
