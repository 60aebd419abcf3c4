"""The registry of opcode handlers.

In: handlers by name, with the Python versions they are for. Out: `handler_of`. Invariant: an opcode
of the running version without a handler is a graph break, found by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import SUPPORTED, VERSION

if TYPE_CHECKING:
    from flambeau_capture.interp.frame import Frame
    from flambeau_capture.values.base import Value

OpHandler = Callable[["Frame", Instruction], None]
H = TypeVar("H", bound=OpHandler)

_HANDLERS: dict[str, OpHandler] = {}


@dataclass(frozen=True)
class Registration:
    """A handler's row, whatever the running version. breaks: why the opcode ends the graph."""

    since: tuple[int, int]
    until: tuple[int, int]
    breaks: str


REGISTERED: dict[str, list[Registration]] = {}


def opcode(
    *names: str,
    since: tuple[int, int] = (3, 11),
    until: tuple[int, int] = SUPPORTED[-1],
    breaks: str = "",
) -> Callable[[H], H]:
    """Register a handler for opcodes, from one version of Python to another, both included.

    breaks: for opcodes that capture does not interpret, what they are for.
    """

    def register(handler: H) -> H:
        for name in names:
            REGISTERED.setdefault(name, []).append(Registration(since, until, breaks))
        if since <= VERSION <= until:
            for name in names:
                _HANDLERS[name] = handler
        return handler

    return register


def expression(name: str, taken: int | None, value: Callable[..., Value], **versions: Any) -> None:
    """Register an opcode that takes values from the stack (None: as many as its operand says) and
    pushes `value(tx, instruction, *values)`."""

    @opcode(name, **versions)
    def push(frame: Frame, instruction: Instruction) -> None:
        count = operand(instruction) if taken is None else taken
        frame.push(value(frame.tx, instruction, *frame.pop_many(count)))


def statement(name: str, taken: int, effect: Callable[..., None], **versions: Any) -> None:
    """Register an opcode that takes values from the stack for `effect(frame, instruction, *values)`
    and pushes nothing."""

    @opcode(name, **versions)
    def run(frame: Frame, instruction: Instruction) -> None:
        effect(frame, instruction, *frame.pop_many(taken))


def refused(id: str, *names: str, breaks: str, **versions: Any) -> None:
    """Register opcodes that end the graph."""

    @opcode(*names, breaks=breaks, **versions)
    def refuse(frame: Frame, instruction: Instruction) -> None:
        raise Break(id, instruction.opname)


def operand(instruction: Instruction) -> int:
    """The operand of an instruction whose operand is a number."""
    return int(instruction.arg or 0)


def handler_of(name: str) -> OpHandler:
    return _HANDLERS.get(name, _unknown)


def _unknown(frame: Frame, instruction: Instruction) -> None:
    raise Break("FB0008", f"{instruction.opname} ({instruction.argval!r})")
