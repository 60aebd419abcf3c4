"""Log of interpreted instructions.

In: a code object ready to be interpreted. Out: the same, whose handlers log before they act.
Invariant: interpretation is the same; a code object prepared while nobody listens pays nothing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Prepared
from flambeau_capture.interp.opcodes.registry import OpHandler
from flambeau_capture.observe import logs


def narrated(prepared: Prepared) -> Prepared:
    """`prepared` with handlers that log their instruction, its line and the stack's depth."""
    return dataclasses.replace(prepared, handlers=[_telling(h) for h in prepared.handlers])


def _telling(handler: OpHandler) -> OpHandler:
    def tell(frame: Any, instruction: Instruction) -> None:
        logs.emit("instructions", lambda: _line(frame, instruction))
        handler(frame, instruction)

    return tell


def _line(frame: Any, instruction: Instruction) -> str:
    where = frame.line()
    return (
        f"{where.function} line {where.lineno}: {instruction!r}  [{len(frame.stack)} on the stack]"
    )
