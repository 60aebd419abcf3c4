"""One interpreted frame: its stack, variables, cells and position.

In: a code object with bound arguments. Out: what the frame returns or yields. Invariant: an
exception of the program goes to the handler that the exception table names, with the stack that
CPython would have there.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture.breaks import Break, UserLine
from flambeau_capture.bytecode.decode import Body, Region, decode
from flambeau_capture.bytecode.flow import covering
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.opcodes import OpHandler, handler_of
from flambeau_capture.values.base import Unreconstructible, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions import CellValue, FunctionValue, GlobalsScope

if TYPE_CHECKING:
    from flambeau_capture.interp.session import Session


class NullValue(Value):
    """The NULL that CPython keeps beside a callable."""

    def describe(self) -> str:
        return "NULL"

    def reconstruct(self, writer: Any) -> None:
        writer.load_null()


NULL = NullValue()


class ErrorState(Value):
    """The exception that was being handled before this handler began.

    `step` is where the handled exception was raised: Python has to raise it again for a handler to
    run in Python, since no bytecode can enter a handler otherwise.
    """

    def __init__(self, value: Value | None, step: int) -> None:
        self.value = value
        self.step = step

    def describe(self) -> str:
        return "the state of an exception handler"

    def reconstruct(self, writer: Any) -> None:
        raise Unreconstructible(self, "a break inside an exception handler")


@dataclass(frozen=True)
class Prepared:
    """A code object ready to be interpreted."""

    body: Body
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
        session: Session,
        code: CodeType,
        scope: GlobalsScope,
        variables: dict[str, Value],
        cells: dict[str, CellValue],
        function: FunctionValue | None = None,
    ) -> None:
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
        self.returned: Value = Constant(None)
        self.yielded: Value | None = None
        self.finished = False

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
        tx.enter(self)
        try:
            while not self.finished and self.yielded is None:
                tx.count_step()
                try:
                    self.step()
                except UserError as error:
                    if not self.unwind(error):
                        self.finished = True
                        raise
                except Break as error:
                    if not error.lines:
                        error.lines = tx.user_lines()
                    raise
        finally:
            tx.leave(self)

    def unwind(self, error: UserError) -> bool:
        """Go to the handler of an exception, if this frame has one."""
        region = self.prepared.regions.get(self.current)
        if region is None:
            return False
        self.tx.raised_at = self.tx.top_step
        del self.stack[region.depth :]
        if region.lasti:
            self.push(Constant(self.current.offset))
        self.push(error.value)
        self.jump(region.handler)
        return True

    # -- generators -----------------------------------------------------------------------------

    def resume(self, tx: Any, sent: Value, started: bool) -> Value | None:
        """Run a generator's frame to its next item; None when it returns."""
        if started:
            self.push(sent)
        return self._next_item()

    def throw(self, tx: Any, error: Value) -> Value | None:
        """Raise an exception where a generator's frame waits."""
        raised = UserError(error)
        self.push(Constant(None))
        if not self.unwind(raised):
            self.finished = True
            raise raised
        return self._next_item()

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
