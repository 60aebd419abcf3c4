"""Interpreted frame: stack, variables, cells, position.

In: a code object with bound arguments. Out: what the frame returns or yields. Invariant: an
exception of the program goes to the handler that the exception table names, with the stack that
CPython would have there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture.breaks import Break, UserLine
from flambeau_capture.bytecode.decode import CodeBody, Region, decode
from flambeau_capture.bytecode.flow import covering
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.interp.opcodes.registry import OpHandler, handler_of
from flambeau_capture.observe import logs
from flambeau_capture.values.base import Unreconstructible, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.variables import CellValue, GlobalsScope
from flambeau_capture.values.objects.exceptions import ExceptionValue
from flambeau_capture.values.tensors.numbers.open_choices import UndecidedValue

if TYPE_CHECKING:
    from flambeau_capture.interp.tracer import SymbolicTracer


def narrated(prepared: Prepared) -> Prepared:
    """`prepared` with handlers that log their instruction, its line and the stack's depth."""
    return dataclasses.replace(prepared, handlers=[_telling(h) for h in prepared.handlers])


def _telling(handler: OpHandler) -> OpHandler:
    def note(frame: Any, instruction: Instruction) -> None:
        logs.emit("instructions", lambda: _line(frame, instruction))
        handler(frame, instruction)

    return note


def _line(frame: Any, instruction: Instruction) -> str:
    where = frame.line()
    return (
        f"{where.function} line {where.lineno}: {instruction!r}  [{len(frame.stack)} on the stack]"
    )


class NullValue(Value):
    """The NULL that CPython keeps next to a callable."""

    def describe(self) -> str:
        return "NULL"

    def reconstruct(self, writer: Any) -> None:
        writer.load_null()


NULL = NullValue()


class ErrorState(Value):
    """The exception that was being handled before this handler began."""

    def __init__(self, value: Value | None) -> None:
        self.value = value

    def describe(self) -> str:
        return "the state of an exception handler"

    def reconstruct(self, writer: Any) -> None:
        raise Unreconstructible(self, "the state of an exception handler as an object")


class Lasti(Constant):
    """Where the exception of a cleanup handler was raised: RERAISE takes the line from it."""

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(0)  # the code that goes on has other offsets


@dataclass(frozen=True)
class Before:
    """A frame as it was before the instruction it is at."""

    step: int
    stack: tuple[Value, ...]
    effects: int
    calls: int
    error: Value | None


@dataclass(frozen=True)
class Suspended:
    """A frame of the chain that a graph break leaves, outermost first.

    The innermost is before `instruction`. The others wait in it for the frame they have called,
    their stack being what lies below its result; `instead`: the value that is pushed in place of
    that result. `errors`: for every `ErrorState` on the stack, the exception handled since.
    """

    frame: Frame
    instruction: Instruction
    stack: tuple[Value, ...]
    step: int
    errors: dict[int, Value]
    instead: Value | None = None


@dataclass(frozen=True)
class Prepared:
    """A code object ready to be interpreted."""

    body: CodeBody
    index: dict[Instruction, int]
    handlers: list[OpHandler]
    regions: dict[Instruction, Region]


def prepare(code: CodeType) -> Prepared:
    body = decode(code)
    return Prepared(
        body,
        {instruction: index for index, instruction in enumerate(body.instructions)},
        [handler_of(instruction.opname) for instruction in body.instructions],
        covering(body) if body.regions else {},
    )


class Frame:
    """A frame of an inlined function, or (see `top`) the frame under capture itself."""

    def __init__(
        self,
        session: SymbolicTracer,
        code: CodeType,
        scope: GlobalsScope,
        variables: dict[str, Value],
        cells: dict[str, CellValue],
        function: FunctionValue | None = None,
        linked: bool = False,
        instead: Value | None = None,
    ) -> None:
        self.linked = linked  # to the frame below: see `tail`
        self.instead = instead
        self.before = Before(0, (), 0, 0, None)
        self.tx = session
        self.code = code
        self.scope = scope
        self.variables = variables
        self.cells = cells
        self.function = function
        self.prepared = session.prepared(code)
        self.stack: list[Value] = []
        self.position = 0
        self.current: Instruction = self.prepared.body.instructions[0]
        self.keyword_names: tuple[str, ...] = ()
        self.names: DictValue | None = None  # of the body of a class: its namespace
        self.given: list[Any] = []  # what the program has called it with
        self.returned: Value = Constant(None)
        self.yielded: Value | None = None
        self.finished = False
        self.meetings: list[int | None] = []  # where the ways of branches by data end, inside them

    # -- the stack ------------------------------------------------------------------------------

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Value]:
        if count == 0:
            return []
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def untouched_objects(self) -> Iterable[Any]:
        """Arguments that nothing has looked at."""
        return ()

    def contents(self) -> list[Value]:
        """What its cells hold."""
        return [value for cell in self.cells.values() if (value := cell.content) is not None]

    def variable(self, name: str) -> Value | None:
        """What a variable holds; one of a branch that is not decided decides it."""
        found = self.variables.get(name)
        if isinstance(found, UndecidedValue):
            found = found.decided()
            self.variables.pop(name)
            if found is not None:
                self.variables[name] = found
        return found

    def read_variables(self) -> dict[str, Value]:
        """The same of all that are bound."""
        for name in [n for n, v in self.variables.items() if isinstance(v, UndecidedValue)]:
            self.variable(name)
        return self.variables

    def jump(self, target: Instruction | None) -> None:
        assert target is not None
        self.position = self.prepared.index[target]

    # -- running --------------------------------------------------------------------------------

    def step(self) -> None:
        """Interpret one instruction."""
        position = self.position
        instruction = self.current = self.prepared.body.instructions[position]
        self.position = position + 1
        self.prepared.handlers[position](self, instruction)

    def run(self) -> Value:
        """Interpret to the end of an inlined function."""
        self.advance()
        return self.returned

    def advance(self) -> None:
        """Interpret until the frame returns or yields."""
        tx = self.tx
        tx.frames.append(self)
        try:
            while not self.finished and self.yielded is None:
                tx.begin(self)
                try:
                    self.step()
                    if tx.has_generators:
                        if self.finished:
                            self.let_go()
                        tx.end_unheld(self)
                except UserError as error:
                    if not error.lines:
                        error.step, error.lines = error.step or tx.step(), tx.user_lines()
                        new = not error.again and error.step > tx.own_from
                        if new and isinstance(error.value, ExceptionValue):
                            error.stop = tx.before_raising(error.value)
                            error.value.raised_while(tx.error, error.step, error.lines)
                    if self.finished or not self.unwind(error):
                        self.finished = True
                        self._leave_by(error)
                        raise
                except Break as error:
                    tx.locate(error)
                    raise
        finally:
            tx.frames.pop()

    def unwind(self, error: UserError) -> bool:
        """Go to the handler of an exception, if this frame has one."""
        region = self.prepared.regions.get(self.current)
        if region is None:
            return False
        step = error.step or 0
        self.tx.raised_at = step if step > self.tx.own_from else None
        del self.stack[region.depth :]
        if self.tx.has_generators:
            self.tx.end_unheld(self)
        if region.lasti:
            self.push(Lasti(self.current.offset))
        self.push(error.value)
        self.jump(region.handler)
        return True

    def let_go(self) -> None:
        """Hold nothing any more: the frame has come to its end."""
        self.variables.clear()
        self.cells.clear()
        self.stack.clear()

    def _leave_by(self, error: UserError) -> None:
        """An exception that leaves the frame holds its variables, as a traceback does."""
        if not self.tx.has_generators:
            return
        if isinstance(error.value, ExceptionValue):
            error.value.frames.append((dict(self.variables), dict(self.cells)))
        self.let_go()
        self.tx.end_unheld(self)

    # -- generators -----------------------------------------------------------------------------

    def resume(self, tx: Any, sent: Value, started: bool) -> Value | None:
        """Run a generator's frame to its next item; None when it returns."""
        if started:
            self.push(sent)
        return self._next_item()

    def throw(self, tx: Any, error: Value) -> Value | None:
        """Raise an exception where a generator's frame waits."""
        raised = UserError(error, self.tx.step())
        self.push(Constant(None))
        try:
            if not self.unwind(raised):
                self.finished = True
                self._leave_by(raised)
                raise raised
        finally:
            del raised  # an error that its own traceback holds would hold this frame for long
        return self._next_item()

    def awaited(self) -> Value | None:
        """What a generator's frame waits for, in a `yield from` or an `await`."""
        following = self.prepared.body.instructions[self.position]
        return self.stack[-1] if following.opname == "RESUME" and _delegates(following) else None

    def go_on(self, returned: Value) -> Value | None:
        """Run to the next item from where what the frame waited for has returned a value."""
        if VERSION < (3, 12):
            self.pop()
        self.push(returned)
        sending = self.prepared.body.instructions[self.prepared.index[self.current] - 1]
        self.jump(sending.target)
        return self._next_item()

    def ends_with_code(self) -> bool:
        """Whether code would run if it ended where it waits: handlers are around the `yield`."""
        region = self.prepared.regions.get(self.current)
        while region is not None and region.handler.opname == "CLEANUP_THROW":
            region = self.prepared.regions.get(region.handler)  # what is around `yield from`
        # every generator of 3.12 is inside the handler that makes RuntimeError of StopIteration
        return region is not None and region.handler.opname != "CALL_INTRINSIC_1"

    def _next_item(self) -> Value | None:
        self.yielded = None
        self.advance()
        item, self.yielded = self.yielded, None
        return item

    def line(self) -> UserLine:
        """Where the frame is, in the source."""
        positions = self.current.positions
        line = positions.lineno if positions is not None else None
        name = self.tx.name_of(self.code)
        return UserLine(self.code.co_filename, line or self.code.co_firstlineno, name)


def _delegates(resume: Instruction) -> bool:
    """Whether a RESUME is that of a `yield from` (2) or an `await` (3)."""
    return int(resume.arg or 0) & 3 >= 2


def make_cells(frame: Frame) -> None:
    """Cells of the frame's own variables (arguments among them) and of its function's closure."""
    code = frame.code
    for name in code.co_cellvars:
        found = frame.variables.pop(name, None)
        frame.cells[name] = CellValue(found, name=name, tx=frame.tx, owner=code)
    if frame.function is not None and code.co_freevars:
        for name, cell in zip(code.co_freevars, frame.function.closure()):
            frame.cells[name] = cell
