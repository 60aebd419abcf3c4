"""Operand pools: names, constants, frame slots.

In: what instructions mean (a name, a constant, a variable). Out: its index. Invariant: two
constants share an entry only if no program can tell them apart (1, 1.0 and True do not, nor do 0.0
and -0.0); objects that are not plain constants are told apart by identity.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from types import CodeType

from flambeau_capture.bytecode.decode import local_slots
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import OperandKind, spec


class AssembleError(ValueError):
    """The instructions cannot be written as a code object of the running Python."""


class NamePool:
    """co_names in order of first use."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def index(self, name: str) -> int:
        return self._index.setdefault(name, len(self._index))

    def values(self) -> tuple[str, ...]:
        return tuple(self._index)


class ConstantPool:
    """co_consts: the given ones first, then in order of first use."""

    def __init__(self, first: Iterable[object] = ()) -> None:
        self._values: list[object] = []
        self._index: dict[Hashable, int] = {}
        for value in first:
            self.index(value)

    def index(self, value: object) -> int:
        key = constant_key(value)
        if key not in self._index:
            self._index[key] = len(self._values)
            self._values.append(value)
        return self._index[key]

    def values(self) -> tuple[object, ...]:
        return tuple(self._values)


def constant_key(value: object) -> Hashable:
    """Equal keys: one constant may stand for the other."""
    kind = type(value)
    if kind in (int, bool, str, bytes):
        return kind, value
    if kind is float and isinstance(value, float):
        return kind, value.hex() if not math.isnan(value) else id(value)
    if kind is complex and isinstance(value, complex):
        return kind, constant_key(value.real), constant_key(value.imag)
    if kind is tuple and isinstance(value, tuple):
        return kind, tuple(constant_key(item) for item in value)
    return kind, "identity", id(value)


class Slots:
    """The frame's slots: arguments and variables, own cells, free variables.

    A name can own two slots, a variable's and a free variable's, when a comprehension that 3.12
    inlines has a variable of the name. An instruction decoded with the same slots keeps its index;
    one written by name means the variable if it is a plain access, the cell if it is a cell's.
    """

    def __init__(
        self,
        template: CodeType,
        varnames: tuple[str, ...],
        cellvars: tuple[str, ...],
        freevars: tuple[str, ...],
    ) -> None:
        for label, group in (("varnames", varnames), ("cellvars", cellvars), ("free", freevars)):
            if len(set(group)) != len(group):
                raise AssembleError(f"{label} names a variable twice: {group}")
        self.varnames, self.cellvars, self.freevars = varnames, cellvars, freevars
        self._template = local_slots(template)

    @property
    def names(self) -> tuple[str, ...]:
        own = self.varnames
        return (*own, *(name for name in self.cellvars if name not in own), *self.freevars)

    def declare(self, instructions: Iterable[Instruction]) -> None:
        """Make a local variable of every name that plain accesses use and nobody declared."""
        known = dict.fromkeys(self.names)
        fresh: dict[str, None] = {}
        for instruction in instructions:
            row = spec(instruction.opname)
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
