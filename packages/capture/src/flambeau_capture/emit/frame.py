"""The code that runs in place of a captured frame.

In: what interpretation ended with (a returned value, or a break with the stack and the variables at
that point), the effects, and the graph. Out: a code object of the same signature. Invariant: when
the unsupported instruction runs, stack, variables, cells and every object of the program are as
they would be without compiling; if it raises, the original handlers run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import Body, Region
from flambeau_capture.bytecode.flow import covering, remove_dead_code
from flambeau_capture.bytecode.instruction import Instruction, Positions
from flambeau_capture.bytecode.opcodes import TERMINATORS, VERSION
from flambeau_capture.bytecode.stack import stack_effect
from flambeau_capture.effects.heap import Replayable
from flambeau_capture.emit.names import Names
from flambeau_capture.emit.resume import CannotResume, live_at, make_resumption
from flambeau_capture.emit.writer import Writer, without_unused_temporaries
from flambeau_capture.graph import GraphInput
from flambeau_capture.source import Local
from flambeau_capture.values.base import Value

CALLS = {"CALL": 2, "CALL_KW": 3}


@dataclass(frozen=True)
class State:
    """The interpreted frame where it stopped. `cells`: the frame's own cells by name."""

    body: Body
    namespace: dict[str, Any]
    variables: dict[str, Value | None]  # None: an argument that is as it was
    cells: dict[str, Any]
    effects: Sequence[Replayable]
    grad_mode: bool | None


@dataclass(frozen=True)
class Stop:
    """A break: the instruction to run in Python, the ones that prepare it, and the stack."""

    instruction: Instruction
    preparation: tuple[Instruction, ...]
    stack: tuple[Value, ...]
    is_null: tuple[bool, ...]


Compile = Callable[[Sequence[fx.Node]], "tuple[str, Sequence[GraphInput]] | None"]


def emit_return(state: State, value: Value, compile_graph: Compile) -> CodeType:
    """The frame ran to its end."""
    writer = Writer(state.body.code)
    writer.load(value)
    _effects(writer, state)
    _fill_cells(writer, state, writer.used_cells)
    writer.body += spelling.return_value()
    return _assemble(writer, state, compile_graph, None)


def emit_break(state: State, stop: Stop, names: Names, compile_graph: Compile) -> CodeType:
    """The frame runs to the unsupported instruction, does it in Python, and goes on elsewhere."""
    writer = Writer(state.body.code)
    _effects(writer, state)
    for value, null in zip(stop.stack, stop.is_null):
        if null:
            writer.load_null()
        else:
            writer.load(value)
    _restore_variables(writer, state, stop.instruction)
    _fill_cells(writer, state, set(state.cells))
    tail = _Tail(state, stop, names)
    tail.write()
    return _assemble(writer, state, compile_graph, tail)


def _effects(writer: Writer, state: State) -> None:
    for effect in state.effects:
        effect.replay(writer)
    if state.grad_mode is not None:
        writer.body += [
            *spelling.callable_from(spelling.load_const(compat.set_grad_enabled)),
            *spelling.load_const(state.grad_mode),
            *spelling.call(1),
            *spelling.pop_top(),
        ]


def _restore_variables(writer: Writer, state: State, instruction: Instruction) -> None:
    live = live_at(state.body, instruction, tuple(state.variables))
    moved: list[str] = []
    for name in live:
        value = state.variables[name]
        if value is None or (value.source == Local(name) and _is_argument(state, name)):
            continue
        writer.load(value)
        moved.append(name)
    for name in reversed(moved):
        writer.body += spelling.store_fast(name)


def _is_argument(state: State, name: str) -> bool:
    code = state.body.code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return name in code.co_varnames[:count]


def _fill_cells(writer: Writer, state: State, wanted: set[str]) -> None:
    for name, cell in state.cells.items():
        if name not in wanted or name in state.body.code.co_freevars:
            continue
        content = cell.content
        if content is None or (content.source == Local(name) and not cell.written):
            continue
        writer.load(content)
        writer.body += spelling.store_deref(name)


class _Tail:
    """The unsupported instruction, the calls of the resume functions, and the old handlers."""

    def __init__(self, state: State, stop: Stop, names: Names) -> None:
        self.state = state
        self.stop = stop
        self.names = names
        self.instructions: list[Instruction] = []
        self.regions: list[Region] = []
        self.handlers: list[Instruction] = []

    def write(self) -> None:
        stop, body = self.stop, self.state.body
        instruction = stop.instruction
        mask = [not null for null in stop.is_null]
        native, after = self._native(instruction, mask)
        self.instructions += native
        if instruction.opname == "FOR_ITER":
            self._continue_loop(instruction, native[-1], mask)
        elif instruction.opname not in TERMINATORS:
            following = body.instructions[body.instructions.index(instruction) + 1]
            self._resume(following, after)
            if instruction.target is not None:
                label = spelling.nop()[0]
                native[-1].target = label
                self.instructions.append(label)
                net = stack_effect(instruction, jump=True)
                self._resume(instruction.target, _after(mask, net))
        self._cover(instruction, native)

    def _native(
        self, instruction: Instruction, mask: list[bool]
    ) -> tuple[list[Instruction], list[bool]]:
        """The instruction as it runs in the new frame, and the stack's shape after it."""
        position = instruction.positions
        opname = instruction.opname
        if opname == "LOAD_METHOD" or (opname == "LOAD_ATTR" and instruction.flags.method):
            made = [*spelling.load_attr(str(instruction.argval)), *spelling.callable_on_top()]
            after = [*mask[:-1], *((True, False) if spelling.NULL_ABOVE else (False, True))]
        elif opname in ("LOAD_SUPER_ATTR", "LOAD_GLOBAL"):
            raise CannotResume(f"a break at {opname}")
        else:
            made = [_copy(one) for one in (*self.stop.preparation, instruction)]
            if opname in CALLS and instruction.arg is not None:
                after = [*mask[: -(CALLS[opname] + instruction.arg)], True]
            elif opname == "CALL_FUNCTION_EX":
                after = [*mask[: -(3 + (int(instruction.arg or 0) & 1))], True]
            else:
                after = _after(mask, stack_effect(instruction, jump=False))
        for one in made:
            one.positions = position
        return made, after

    def _continue_loop(
        self, instruction: Instruction, native: Instruction, mask: list[bool]
    ) -> None:
        body = self.state.body
        where = {one: index for index, one in enumerate(body.instructions)}
        self._resume(body.instructions[where[instruction] + 1], [*mask, True])
        end = spelling.end_for()
        native.target = end[0]
        self.instructions += end
        assert instruction.target is not None
        skipped = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)
        self._resume(body.instructions[where[instruction.target] + skipped], mask[:-1])

    def _resume(self, target: Instruction, mask: list[bool]) -> None:
        """Call the function that goes on at `target` and return what it returns."""
        state = self.state
        arguments = live_at(state.body, target, tuple(self._bound()))
        key = (target.offset, tuple(mask), arguments)
        made = self.names.made_from(state.body.code)
        known = made.get(key)
        if known is None:
            offset = target.offset if target.offset is not None else 0
            name = f"__resume_at_{offset}_{self.names.reserve()}"
            known = make_resumption(state.body, target, mask, arguments, name)
            made[key] = known
            self.names.origins[known.code] = self.names.origin(state.body.code)
        free = known.code.co_freevars
        if free:
            for name in free:
                self.instructions += spelling.load_closure(name)
            self.instructions += spelling.build_tuple(len(free))
            self.instructions += spelling.make_function(known.code, spelling.CLOSURE)
            self.instructions += spelling.callable_on_top()
        else:
            name = self._global(known)
            self.instructions += spelling.load_global(name, push_null=True)
        pushed = 2
        for name in arguments:
            self.instructions += spelling.load_fast_bound(name)
            pushed += 1
        for place, passed in enumerate(mask):
            if passed:
                self.instructions += spelling.copy(len(mask) - place + pushed)
                pushed += 1
        self.instructions += spelling.call(pushed - 2)
        self.instructions += spelling.return_value()

    def _bound(self) -> list[str]:
        bound = list(self.state.variables)
        if self.stop.instruction.opname == "DELETE_FAST":
            bound.remove(str(self.stop.instruction.argval))
        if self.stop.instruction.opname == "STORE_FAST":
            bound.append(str(self.stop.instruction.argval))
        return bound

    def _global(self, known: Any) -> str:
        import types

        namespace = self.state.namespace
        found = namespace.get(known.name)
        if isinstance(found, types.FunctionType) and found.__code__ is known.code:
            return str(known.name)
        made = types.FunctionType(known.code, namespace, known.name)
        return self.names.install(namespace, known.name, made)

    def _cover(self, instruction: Instruction, native: list[Instruction]) -> None:
        """Let the original handlers catch what the unsupported instruction raises."""
        region = covering(self.state.body).get(instruction)
        if region is None:
            return
        copy, twin = self.state.body.copy()
        self.instructions += copy.instructions
        self.regions += copy.regions
        self.regions.append(
            Region(native[0], native[-1], twin[region.handler], region.depth, region.lasti)
        )


def _after(mask: list[bool], net: int) -> list[bool]:
    return [*mask, *[True] * net] if net >= 0 else mask[:net]


def _copy(instruction: Instruction) -> Instruction:
    return Instruction(
        instruction.opname,
        instruction.arg,
        instruction.argval,
        target=instruction.target,
        positions=instruction.positions,
        flags=instruction.flags,
    )


def _assemble(writer: Writer, state: State, compile_graph: Compile, tail: _Tail | None) -> CodeType:
    code = state.body.code
    graph_call: list[Instruction] = []
    compiled = compile_graph(list(writer.outputs))
    if compiled is not None:
        name, inputs = compiled
        graph_call += spelling.load_global(name, push_null=True)
        for given in inputs:
            graph_call += writer.read(given.source)
        graph_call += spelling.call(len(inputs))
        if writer.outputs:
            graph_call += spelling.unpack_sequence(len(writer.outputs))
            for local in writer.outputs.values():
                graph_call += spelling.store_fast(local)
        else:
            graph_call += spelling.pop_top()
    prefix = spelling.prefix(code.co_cellvars, code.co_freevars)
    line = code.co_firstlineno
    written = without_unused_temporaries([*writer.early, *writer.body])
    generated = [*prefix, *graph_call, *written]
    for instruction in generated:
        instruction.positions = Positions(line, line, None, None)
    instructions = [*generated, *(tail.instructions if tail is not None else [])]
    regions = tail.regions if tail is not None else []
    whole = Body(instructions, code, list(regions))
    if regions:
        whole = remove_dead_code(whole)
    return assemble(whole)
