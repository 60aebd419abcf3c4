"""Generated code that runs a frame's original code, the frame hook off.

In: the original code. Out: a code object of the same signature. Invariant: nothing that the
original code calls is captured; the program sees its own exceptions, from its own lines.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, decode
from flambeau_capture.bytecode.instruction import Instruction, SourcePositions

_VARIADIC = 0x04 | 0x08


def emit_original(code: CodeType, disabled: Any) -> CodeType:
    """`disabled` wraps a function so that it runs with the hook off."""
    made = [*spelling.prefix((), code.co_freevars), *run_original(code, disabled)]
    line = code.co_firstlineno
    for instruction in made:
        instruction.positions = SourcePositions(line, line, None, None)
    return assemble(CodeBody(made, decode(code).code), cellvars=())


def run_original(
    code: CodeType, wrap: Any, *given: list[Instruction], cells: tuple[str, ...] = ()
) -> list[Instruction]:
    """Call the original code with this frame's arguments, as they are bound, and return.

    wrap: is given the function, and what `given` loads. cells: of the arguments, those in cells."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    plain = code.replace(
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_VARIADIC,
    )
    made: list[Instruction] = [*spelling.callable_from(spelling.load_const(wrap))]
    for name in code.co_freevars:
        made += spelling.load_closure(name)
    if code.co_freevars:
        made += spelling.build_tuple(len(code.co_freevars))
    made += spelling.make_function(plain, spelling.CLOSURE if code.co_freevars else 0)
    for load in given:
        made += load
    made += spelling.call(1 + len(given))
    made += spelling.callable_on_top()
    for name in code.co_varnames[:count]:
        made += spelling.load_deref(name) if name in cells else spelling.load_fast_bound(name)
    return [*made, *spelling.call(count), *spelling.return_value()]
