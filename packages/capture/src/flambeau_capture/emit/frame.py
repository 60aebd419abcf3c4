"""Bytecode that replaces a captured frame.

In: what interpretation ended with (a returned value, or a break with the frames it leaves)
and the effects: `plan_return`, `plan_break`, which say what is needed of the graph; then how the
compiled graph is called: `emit`. Out: a code object of the same signature. Invariant: when the
unsupported instruction runs, stack, variables, cells and every object of the program are as they
would be without compiling; if it raises, the original handlers run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, Region, argument_count
from flambeau_capture.bytecode.flow import remove_dead_code
from flambeau_capture.bytecode.instruction import Instruction, at_line
from flambeau_capture.bytecode.pools import AssembleError
from flambeau_capture.bytecode.stack import GENERATOR_LIKE
from flambeau_capture.effects.side_effects import Replayable
from flambeau_capture.emit.chain import ChainPlan, make_plan, parts_of, run_inner
from flambeau_capture.emit.level import Host, Level, after_call, native, run_original
from flambeau_capture.emit.names import EntryNames
from flambeau_capture.emit.resume import INSTEAD, Goal, StackSlot, enter_handler
from flambeau_capture.emit.writer import (
    BytecodeWriter,
    stores_temporary,
    without_unused_temporaries,
)
from flambeau_capture.graph.builder import GraphInput
from flambeau_capture.source import Local
from flambeau_capture.values.base import Value
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.readings import Reading

_PARTS = "___parts"


@dataclass(frozen=True)
class FrameState:
    """What the frame under capture has come to. `cells`: the frame's own cells by name."""

    body: CodeBody
    cells: dict[str, Any]
    effects: Sequence[Replayable]
    grad_mode: bool | None
    level_of: Callable[[Any, bool], Level]  # the frame of a generator, and whether it has started
    own_of: Callable[[Any], Value | None]  # the value that an object of capture's own stands for


@dataclass(frozen=True)
class CompiledGraphCall:
    """A graph's name, its inputs, and what wraps the frame's function where the graph has raised,
    if nothing is left of it then: it is given the function, the error, and the inputs."""

    name: str
    inputs: Sequence[GraphInput]
    again: Any = None


@dataclass(frozen=True)
class FramePlan:
    """The new code but for the call of its graph, which comes before `body`.

    tail: what is kept of the frame's own instructions, with the handlers (`regions`) over them."""

    state: FrameState
    writer: BytecodeWriter
    body: list[Instruction]
    tail: list[Instruction] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)

    @property
    def outputs(self) -> list[fx.Node]:
        """The results of the graph that the code reads, in order."""
        return list(self.writer.outputs)


def plan_return(state: FrameState, value: Value) -> FramePlan:
    """The frame ran to its end."""
    writer = BytecodeWriter(state.body.code, state.level_of, state.own_of)
    _readings(writer, state)
    writer.load(value)
    _effects(writer, state)
    _store(writer, _cells(writer, state, writer.used_cells))
    writer.body += spelling.return_value()
    return _planned(writer, state)


def plan_break(state: FrameState, levels: Sequence[Level], names: EntryNames) -> FramePlan:
    """The frames run to the unsupported instruction, do it in Python, and go on elsewhere.

    levels: the frame under capture, then those it has inlined; the last is at the instruction.
    """
    outer = levels[0]
    writer = BytecodeWriter(state.body.code, state.level_of, state.own_of)
    _readings(writer, state)
    _effects(writer, state)
    plan = None
    if len(levels) > 1:
        plan = make_plan(levels[1:], names)
        writer.load(TupleValue([parts_of(level) for level in levels[1:]]))
        writer.body += spelling.store_fast(_PARTS)
        if outer.instead is not None:
            writer.load(outer.instead)
            writer.body += spelling.store_fast(INSTEAD)
    regions = _push_stack(writer, outer)
    _store(writer, [*_variables(writer, outer), *_cells(writer, state, set(state.cells))])
    _let_go(writer, outer)
    host = Host(outer, names, again=names.is_resumption(state.body.code))
    if plan is None:
        done = native(outer)
        host.instructions += done.instructions
        for road in done.roads:
            host.instructions += road.start
            host.go_on(Goal(outer.body, road.target, road.slots))
        host.cover(done.instructions)
    else:
        _run_plan(host, plan, any(level.region() for level in levels[1:]))
    return _planned(writer, state, host.instructions, [*regions, *host.regions])


def _planned(
    writer: BytecodeWriter,
    state: FrameState,
    tail: Sequence[Instruction] = (),
    regions: Sequence[Region] = (),
) -> FramePlan:
    for node in writer.outputs:
        if node not in writer.numbers:
            _no_stand_in(node.meta.get("val"), compat.NUMBERS)
    body = without_unused_temporaries([*writer.early, *writer.body])
    if tail:
        temporaries = [
            *writer.outputs.values(),
            *dict.fromkeys(
                str(one.argval) for one in [*writer.first, *body] if stores_temporary(one)
            ),
        ]
        body += [one for name in temporaries for one in spelling.delete_fast(name)]
    _check_constants([*writer.first, *body, *tail])
    return FramePlan(state, writer, body, list(tail), list(regions))


def _run_plan(host: Host, plan: ChainPlan, may_return: bool) -> None:
    parts = [*spelling.callable_from(spelling.load_const(plan.run)), *spelling.take_fast(_PARTS)]
    call = run_inner(host, [*parts, *spelling.call(1)], may_return)
    host.go_on(after_call(host.level, host.names, plan.inside))
    host.cover(call)


def _push_stack(writer: BytecodeWriter, level: Level) -> list[Region]:
    regions: list[Region] = []
    for place, (slot, value) in enumerate(zip(level.slots, level.stack)):
        if value is None:
            writer.load_null()
            continue
        writer.load(value)
        if slot is StackSlot.ERROR:
            writer.body += [*spelling.dup_top(), *spelling.store_fast(f"___stack_{place}")]
            made, region = enter_handler(place)
            writer.body += made
            regions.append(region)
    return regions


def _readings(writer: BytecodeWriter, state: FrameState) -> None:
    """What only Python can say, in the program's order, before anything that has it."""
    readings = [effect for effect in state.effects if isinstance(effect, Reading)]
    for reading in (each for each in readings if each.is_first):
        reading.make(writer)
    writer.first, writer.body = writer.body, []
    for reading in (each for each in readings if not each.is_first):
        reading.make(writer)


def _effects(writer: BytecodeWriter, state: FrameState) -> None:
    for effect in state.effects:
        effect.replay(writer)
    if state.grad_mode is not None:
        writer.body += [
            *spelling.callable_from(spelling.load_const(compat.set_grad_enabled)),
            *spelling.load_const(state.grad_mode),
            *spelling.call(1),
            *spelling.pop_top(),
        ]


def _store(writer: BytecodeWriter, stores: Iterable[list[Instruction]]) -> None:
    """Each takes what was pushed for it: all is read before any of it is overwritten."""
    for store in reversed([*stores]):
        writer.body += store


def _variables(writer: BytecodeWriter, level: Level) -> Iterator[list[Instruction]]:
    """Push what the frame's variables hold; answer what stores it."""
    arguments = level.body.code.co_varnames[: argument_count(level.body.code)]
    for name in level.live():
        value = level.variables.get(name)
        if value is None or (value.source == Local(name) and name in arguments):
            continue
        writer.load(value)
        yield spelling.store_fast(name)


def _let_go(writer: BytecodeWriter, level: Level) -> None:
    """Hold what the frame would and no more: an argument that has another value, or none, is that
    variable's no longer. What the code has just set for itself stays: a resume function's own
    parameters have the same names."""
    code = level.body.code
    errors = [place for place, slot in enumerate(level.slots) if slot is StackSlot.ERROR]
    instead = [] if level.instead is None else [INSTEAD]
    live = (*level.live(), *instead, *(f"___stack_{place}" for place in errors))
    for name in code.co_varnames[: argument_count(code)]:
        untouched = name in level.variables and level.variables[name] is None
        if name not in live and name not in code.co_cellvars and not untouched:
            writer.body += spelling.delete_fast(name)


def _cells(
    writer: BytecodeWriter, state: FrameState, wanted: set[str]
) -> Iterator[list[Instruction]]:
    """Push what the frame's own cells hold; answer what stores it, or empties an argument's."""
    arguments = state.body.code.co_varnames[: argument_count(state.body.code)]
    for name, cell in state.cells.items():
        if name not in wanted or name in state.body.code.co_freevars or cell.pending is not None:
            continue
        content = cell.content
        if content is None and cell.written and name in arguments:
            yield spelling.delete_deref(name)
        if content is None or (content.source == Local(name) and not cell.written):
            continue
        writer.load(content)
        yield spelling.store_deref(name)


def emit(plan: FramePlan, graph: CompiledGraphCall | None) -> CodeType:
    """The planned code, with the call of its graph, if there is one."""
    writer, code = plan.writer, plan.state.body.code
    tail, regions = plan.tail, plan.regions
    graph_call: list[Instruction] = []
    if graph is not None:
        graph_call += plan.writer.keep(each.source for each in graph.inputs)
        graph_call += spelling.load_global(graph.name, push_null=True)
        for given in graph.inputs:
            graph_call += writer.read(given.source)
        called = spelling.call(len(graph.inputs))
        graph_call += called
        if graph.again is not None and not code.co_flags & GENERATOR_LIKE:
            inputs = [writer.read(each.source) for each in graph.inputs]
            landing = _run_as_it_is(code, graph.again, inputs)
            _check_constants(landing)
            tail = [*tail, *landing]
            regions = [*regions, Region(called[0], called[-1], landing[0], 0, False)]
        if writer.outputs:
            graph_call += spelling.unpack_sequence(len(writer.outputs))
            for local in writer.outputs.values():
                graph_call += spelling.store_fast(local)
        else:
            graph_call += spelling.pop_top()
    _check_constants(graph_call)
    prefix = spelling.prefix(code.co_cellvars, code.co_freevars)
    generated = at_line([*prefix, *writer.first, *graph_call, *plan.body], code.co_firstlineno)
    whole = CodeBody([*generated, *tail], code, regions)
    return assemble(remove_dead_code(whole) if regions else whole)


def _run_as_it_is(
    code: CodeType, again: Any, inputs: Sequence[list[Instruction]]
) -> list[Instruction]:
    """Where a graph that raised goes on: its error is handled, and the frame runs from the start,
    for which all is as it was. inputs: what loads each input of the graph once more."""
    error = "___error"
    taken = spelling.take_fast(error)
    made: list[Instruction] = [
        Instruction("PUSH_EXC_INFO"),
        *spelling.swap(2),
        Instruction("POP_EXCEPT"),
        *spelling.store_fast(error),
        *run_original(code, again, taken, *inputs, cells=code.co_cellvars),
    ]
    at_line(made, code.co_firstlineno)
    return made


def _check_constants(instructions: Sequence[Instruction]) -> None:
    for instruction in instructions:
        if instruction.opname == "LOAD_CONST":
            _no_stand_in(instruction.argval, compat.stand_ins())


def _no_stand_in(value: Any, kinds: tuple[type, ...]) -> None:
    """The border of what capture computes with: no symbol and no fake tensor enters the program. A
    number that leaves is computed by Python of what is guarded, or fixed by a guard."""
    if type(value) is tuple:
        for item in value:
            _no_stand_in(item, kinds)
    elif issubclass(type(value), kinds):  # without asking the program's objects for their class
        raise AssembleError(f"a {type(value).__name__} would leave capture")
