"""Operands of a new code object: names, constants, frame slots, and which may be read empty.

In: what instructions mean (a name, a constant, a variable), and what a frame starts with. Out: its
index; the accesses that some path reaches with the slot unbound. Invariant: two constants share an
entry only if they are one object: a program can distinguish equal ones by `is`. From 3.12 on
LOAD_FAST does not check and no version checks that a cell exists: reading an empty slot crashes the
process.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from types import CodeType

from flambeau_capture.bytecode.decode import CodeBody, local_slots
from flambeau_capture.bytecode.flow import Names, before_each
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import THROUGH_CELL, OpcodeTable, OperandKind


class AssembleError(ValueError):
    """The instructions cannot be written as a code object of the running Python."""


class ConstantPool:
    """co_consts: the given ones first, then in order of first use."""

    def __init__(self, first: Iterable[object] = ()) -> None:
        self._values: list[object] = []
        self._index: dict[int, int] = {}  # by the identity of what is in `_values`
        for value in first:
            self.index(value)

    def index(self, value: object) -> int:
        if id(value) not in self._index:
            self._index[id(value)] = len(self._values)
            self._values.append(value)
        return self._index[id(value)]

    def values(self) -> tuple[object, ...]:
        return tuple(self._values)


class Slots:
    """The frame's slots: arguments and variables, own cells, free variables.

    A name can own two slots, a variable's and a free variable's, when a comprehension that 3.12
    inlines has a variable of the name. An instruction decoded with the same slots keeps its index;
    one written by name means the variable if it is a plain access, the cell if it is a cell's.
    """

    def __init__(self, template: CodeType, *groups: tuple[str, ...]) -> None:
        for label, group in zip(("varnames", "cellvars", "free"), groups, strict=True):
            if len(set(group)) != len(group):
                raise AssembleError(f"{label} names a variable twice: {group}")
        self.varnames, self.cellvars, self.freevars = groups
        self._template = local_slots(template)

    @property
    def names(self) -> tuple[str, ...]:
        own = self.varnames
        return (*own, *(name for name in self.cellvars if name not in own), *self.freevars)

    def declare(self, instructions: Iterable[Instruction], table: OpcodeTable) -> None:
        """Make a local variable of every name that plain accesses use and nobody declared."""
        known = dict.fromkeys(self.names)
        fresh: dict[str, None] = {}
        for instruction in instructions:
            row = table.spec(instruction.opname)
            if row.kind not in (OperandKind.LOCAL, OperandKind.CELL):
                continue
            name = instruction.argval
            if not isinstance(name, str):
                raise AssembleError(f"{instruction!r} needs a variable's name for its argval")
            if name in known:
                continue
            if row.kind is OperandKind.CELL:
                raise AssembleError(
                    f"{instruction!r}: {name!r} is in neither cellvars nor freevars"
                )
            fresh[name] = None
        self.varnames = (*self.varnames, *fresh)
        names = self.names
        self._kept = names == self._template
        self._variable = {name: at for at, name in reversed(list(enumerate(names)))}
        self._cell = {name: at for at, name in enumerate(names)}

    def index(self, instruction: Instruction, kind: OperandKind) -> int:
        name, arg = str(instruction.argval), instruction.arg
        if self._kept and arg is not None and arg < len(self._template):
            if self._template[arg] == name:
                return arg
        return (self._variable if kind is OperandKind.LOCAL else self._cell)[name]


_EMPTIES = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
# A check that passes shows that the variable is bound; a new cell fills its slot.
_FILLS = frozenset({"STORE_FAST", "LOAD_FAST_CHECK", "MAKE_CELL"})


def possibly_unbound(body: CodeBody, bound: Collection[str]) -> set[Instruction]:
    """LOAD_FAST instructions whose variable may be unbound; `bound` holds the arguments' names.

    Slots that hold cells are the business of `before_their_cell`: name them in `bound`.
    """
    loads = [i for i in body.instructions if i.opname == "LOAD_FAST"]
    empty = frozenset(str(i.argval) for i in loads) - frozenset(bound)
    if not empty and not any(i.opname in _EMPTIES for i in body.instructions):
        return set()
    before = before_each(body, empty, _after, operator.or_)
    return {i for i in loads if i in before and i.argval in before[i]}


def before_their_cell(
    body: CodeBody, cellvars: Collection[str], freevars: Collection[str]
) -> set[Instruction]:
    """Accesses through a cell that MAKE_CELL or COPY_FREE_VARS may not have put there yet."""
    free = frozenset(freevars)
    accesses = [i for i in body.instructions if i.opname in THROUGH_CELL]
    if not accesses:
        return set()

    def after(instruction: Instruction, state: Names) -> Names:
        if instruction.opname == "COPY_FREE_VARS":
            return state - free
        return _after(instruction, state)

    before = before_each(body, free | frozenset(cellvars), after, operator.or_)
    return {i for i in accesses if i in before and i.argval in before[i]}


def _after(instruction: Instruction, state: Names) -> Names:
    if instruction.opname in _FILLS:
        return state - {str(instruction.argval)}
    if instruction.opname in _EMPTIES:
        return state | {str(instruction.argval)}
    return state
