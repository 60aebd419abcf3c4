"""Liveness analysis of variables.

In: a body. Out: `liveness` (for every instruction) and `live_locals` (for one). Invariant: a name
left out is one whose slot nothing from that instruction on can read before writing it.

Exceptions count as roads. A cell is needed by every access through it, stores included, since other
functions may hold it. Before 3.12 `super()` reads the frame's first variable and `__class__`
without naming them. `locals()`, `eval` and frame inspection are not seen: a caller that meets
those must keep everything.
"""

from __future__ import annotations

from collections import defaultdict

from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.flow import FlowError, covering, successors
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import READS_SLOT, WRITES_SLOT

_NAME_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


def liveness(body: CodeBody) -> dict[Instruction, frozenset[str]]:
    """Names (variables, cells, free variables) that may be read from each instruction on.

    A live name is not always bound: a comprehension that 3.12 inlines saves and restores the slot
    of its variable, which reads it even when it is empty.
    """
    following, regions = successors(body), covering(body)
    before: dict[Instruction, set[Instruction]] = defaultdict(set)
    for instruction, goals in following.items():
        for goal in goals:
            before[goal].add(instruction)
    for instruction, region in regions.items():
        before[region.handler].add(instruction)
    live: dict[Instruction, frozenset[str]] = dict.fromkeys(body.instructions, frozenset())
    pending = dict.fromkeys(reversed(body.instructions))
    while pending:
        instruction = next(iter(pending))
        del pending[instruction]
        needed: frozenset[str] = frozenset()
        for goal in following[instruction]:
            needed |= live[goal]
        needed = (needed - _written(instruction)) | _read(instruction, body)
        if instruction in regions:  # it may raise before it writes
            needed |= live[regions[instruction].handler]
        if needed != live[instruction]:
            live[instruction] = needed
            pending.update(dict.fromkeys(before[instruction]))
    return live


def live_locals(body: CodeBody, instruction: Instruction) -> frozenset[str]:
    """Names that may be read from `instruction` on, that instruction included."""
    found = liveness(body)
    if instruction not in found:
        raise FlowError(f"{instruction!r} is not in the body")
    return found[instruction]


def _read(instruction: Instruction, body: CodeBody) -> frozenset[str]:
    if instruction.opname in READS_SLOT:
        return frozenset({str(instruction.argval)})
    if instruction.opname in _NAME_LOADS and instruction.argval == "super":
        code = body.code
        if "__class__" in (*code.co_freevars, *code.co_cellvars):
            return frozenset({"__class__", *code.co_varnames[: min(1, code.co_argcount)]})
    return frozenset()


def _written(instruction: Instruction) -> frozenset[str]:
    if instruction.opname in WRITES_SLOT:
        return frozenset({str(instruction.argval)})
    return frozenset()
