"""Opcode tables of the CPython versions that are known.

In: a version of Python, and what `tables/` has written down of it (by tools/opcodes.py). Out: its
`OpcodeTable`: rows by name and by number, the concrete spelling of direction-free jumps, what is
read as something else, and the facts of a version that decoding, assembling and the analyses need;
`RUNNING` is that of the running one. Invariant: what differs between versions is a row of a table
here or a line in `tables/`; nothing else depends on the version of Python to know its bytecode.
Source: Lib/dis.py, Lib/opcode.py and Python/bytecodes.c of the versions.
"""

from __future__ import annotations

import builtins
import functools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

Version = tuple[int, int]
T = TypeVar("T")

VERSION: Final[Version] = (sys.version_info[0], sys.version_info[1])
SUPPORTED: Final[tuple[Version, ...]] = ((3, 11), (3, 12), (3, 13), (3, 14))


class UnsupportedPython(RuntimeError):
    """The running CPython's bytecode is not one that this package knows."""


def objection(version: Version, abiflags: str = "") -> str | None:
    """Why this package does not run on a Python; None: it does."""
    if version not in SUPPORTED:
        known = ", ".join(f"{one}.{two}" for one, two in SUPPORTED)
        return (
            f"flambeau_capture reads the bytecode of CPython {known}; "
            f"this is {version[0]}.{version[1]}. Run it on one of those."
        )
    if "t" in abiflags:
        return (
            "flambeau_capture needs the interpreter's lock; this is a free-threaded build. "
            f"Run it on the usual build of Python {version[0]}.{version[1]}."
        )
    return None


_OBJECTION = objection(VERSION, getattr(sys, "abiflags", ""))
if _OBJECTION is not None:
    raise UnsupportedPython(_OBJECTION)


class OperandKind(Enum):
    """What an operand stands for, which decides where `argval` comes from and goes to."""

    NONE = "no operand"
    NUMBER = "the number itself"
    NAME = "an entry of co_names"
    CONST = "an entry of co_consts"
    LOCAL = "a slot of the frame, read as a plain variable"
    CELL = "a slot of the frame, read as a cell"
    COMPARE = "a comparison operator"
    BINARY = "a binary operator"
    INTRINSIC_1 = "an interpreter intrinsic of one argument"
    INTRINSIC_2 = "an interpreter intrinsic of two arguments"
    SPECIAL = "a special method that `with` looks up"
    COMMON = "an object that the interpreter has at hand"
    SMALL_INT = "the number itself, as a constant"
    FREE_COUNT = "the number of free variables"
    JUMP = "a distance in code units"


@dataclass(frozen=True, slots=True)
class StackEffect:
    """The change of depth by an opcode: a base, (weight, shift, mask) of parts of the operand."""

    base: int = 0
    terms: tuple[tuple[int, int, int], ...] = ()

    def of(self, operand: int) -> int:
        return self.base + sum(w * (operand >> shift & mask) for w, shift, mask in self.terms)


@dataclass(frozen=True, slots=True)
class OpcodeSpec:
    """One opcode: number, operand kind, inline cache units, flag bits below the operand.

    fixed: the operand of an opcode that has none by this name. effect, jumping: of the stack's
    depth, where it does not jump and where it does.
    """

    opname: str
    code: int
    kind: OperandKind
    caches: int
    shift: int = 0
    bits: tuple[tuple[str, int], ...] = ()
    fixed: int = 0
    effect: StackEffect = StackEffect()
    jumping: StackEffect = StackEffect()


# --- what a version has, where that is more than names and numbers --------------------------------

#: a fact by the version from which on it holds
Facts = Mapping[Version, T]

#: opname -> (how far the operand is shifted, the flags in the bits below)
_PACKED: Final[Mapping[str, Facts[tuple[int, tuple[tuple[str, int], ...]]]]] = {
    "LOAD_GLOBAL": {(3, 11): (1, (("push_null", 1),))},
    "LOAD_ATTR": {(3, 12): (1, (("method", 1),))},
    "LOAD_SUPER_ATTR": {(3, 12): (2, (("method", 1), ("two_arg", 2)))},
    "COMPARE_OP": {(3, 12): (4, ()), (3, 13): (5, (("to_bool", 16),))},
}

#: The set of outcomes for which a comparison is true (unordered 1, less 2, greater 4, equal 8),
#: which the specialised forms test.
_COMPARE_MASKS: Final[Facts[Mapping[str, int]]] = {
    (3, 11): {},
    (3, 12): {"<": 2, "<=": 10, "==": 8, "!=": 7, ">": 4, ">=": 12},
}

#: Opcodes whose follower CPython takes for granted: it skips it, reads its cache, or (for
#: YIELD_VALUE) looks at it to distinguish `yield` from `yield from`.
_FOLLOWERS: Final[Mapping[str, Facts[str]]] = {
    "YIELD_VALUE": {(3, 11): "RESUME"},
    "PRECALL": {(3, 11): "CALL"},
    "END_FOR": {(3, 13): "POP_TOP", (3, 14): "POP_ITER"},
}

#: Opcodes that belong to the CALL after them: nothing stops or goes on there.
PREPARES_CALL: Final = frozenset({"KW_NAMES", "PRECALL"})

#: A call's NULL lies above the callable, else below it.
_NULL_ABOVE: Final[Facts[bool]] = {(3, 11): False, (3, 13): True}

#: How far below the top WITH_EXCEPT_START finds the method that it calls.
_EXIT_DEPTH: Final[Facts[int]] = {(3, 11): 4, (3, 14): 5}

#: Opcodes that are written as another one with a fixed operand.
_WRITTEN_AS: Final[Mapping[str, Facts[tuple[str, object]]]] = {
    "BINARY_SUBSCR": {(3, 14): ("BINARY_OP", "[]")},
    "LOAD_ASSERTION_ERROR": {(3, 14): ("LOAD_COMMON_CONSTANT", AssertionError)},
}

#: Opcodes that do what another does, faster or for those who watch.
_READ_AS: Final[Mapping[str, str]] = {
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST",
    "NOT_TAKEN": "NOP",
}

#: Two plain instructions that 3.13's compiler writes as one: the high half byte is the first slot.
SUPERINSTRUCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}


def since(facts: Facts[T], version: Version) -> T | None:
    """The fact in force in a version; None: none is yet."""
    found = [fact for start, fact in sorted(facts.items()) if start <= version]
    return found[-1] if found else None


# --- what holds in every version ------------------------------------------------------------------

CONDITIONAL_SUFFIXES: Final = ("TRUE", "FALSE", "NONE", "NOT_NONE")

INVERSE: Final[Mapping[str, str]] = {
    f"POP_JUMP_IF_{one}": f"POP_JUMP_IF_{other}"
    for one, other in zip(CONDITIONAL_SUFFIXES, ("FALSE", "TRUE", "NOT_NONE", "NONE"))
}

UNCONDITIONAL: Final[frozenset[str]] = frozenset({"JUMP", "JUMP_NO_INTERRUPT"})

# Control never reaches the instruction written after one of these.
TERMINATORS: Final[frozenset[str]] = UNCONDITIONAL.union(
    ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT")
)

# Variables. Any access through a cell needs the cell itself, so a store through it is a read.
THROUGH_CELL: Final[frozenset[str]] = frozenset(
    {
        "LOAD_CLOSURE",
        "LOAD_DEREF",
        "LOAD_CLASSDEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "STORE_DEREF",
        "DELETE_DEREF",
    }
)
READS_SLOT: Final[frozenset[str]] = THROUGH_CELL | frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"}
)
WRITES_SLOT: Final[frozenset[str]] = frozenset(
    {"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"}
)

_ONE_WAY = ("FOR_ITER", "SEND", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")


@dataclass(frozen=True, slots=True)
class OpcodeTable:
    """The opcodes of one version of CPython.

    specs: the row of an opcode, by its own name, its direction-free one, and the one it is read by.
    names: the opcode of a number, as it is written in a code object.
    operators: what the operands of a kind number.
    directions: a direction-free jump -> (its forward spelling, its backward one or None).
    canonical: what an opcode that is written is read as.
    fixed: the same of an opcode with an operand of its own.
    """

    version: Version
    specs: Mapping[str, OpcodeSpec]
    names: dict[int, str]
    operators: Mapping[OperandKind, tuple[object, ...]]
    directions: Mapping[str, tuple[str, str | None]]
    canonical: Mapping[str, str]
    fixed: Mapping[tuple[str, int], str]
    compare_masks: Mapping[str, int]
    followers: Mapping[str, str]
    null_above: bool
    exit_depth: int
    backward: frozenset[str] = field(default=frozenset())

    def spec(self, opname: str) -> OpcodeSpec:
        """The row of an opcode, by its own, its direction-free or its canonical name."""
        try:
            return self.specs[opname]
        except KeyError:
            version = ".".join(map(str, self.version))
            raise ValueError(f"CPython {version} has no opcode {opname!r}") from None

    @property
    def loop_end(self) -> tuple[str, ...]:
        """What an exhausted FOR_ITER jumps to, and does not run: it has popped its iterator."""
        if "END_FOR" not in self.specs:
            return ()
        after = self.followers.get("END_FOR")
        return ("END_FOR",) if after is None else ("END_FOR", after)

    @property
    def checked_load(self) -> str | None:
        """The load that looks whether the variable is bound, where LOAD_FAST does not."""
        return "LOAD_FAST_CHECK" if "LOAD_FAST_CHECK" in self.specs else None


@dataclass(frozen=True, slots=True)
class _Written:
    """What a file of `tables/` says: rows by opname, and the lists that operands number."""

    rows: dict[str, OpcodeSpec]
    names: dict[int, str]
    lists: dict[OperandKind, tuple[object, ...]]


_TERM = re.compile(r"(-?\d+)\*n(?:>>(\d+))?(?:&(\d+))?")


def _effect(text: str) -> StackEffect:
    base, *terms = text.split()
    parts = [_TERM.fullmatch(term) for term in terms]
    return StackEffect(
        int(base), tuple((int(p[1]), int(p[2] or 0), int(p[3] or -1)) for p in parts if p)
    )


def _row(version: Version, line: str) -> OpcodeSpec:
    name, code, *rest = line.split(maxsplit=4)
    if not rest:
        return OpcodeSpec(name, int(code), OperandKind.NONE, 0)
    kind, caches, effects = rest
    plain, _, jumping = effects.partition(" / ")
    packed = since(_PACKED.get(name, {}), version) or (0, ())
    effect = _effect(plain)
    there = _effect(jumping) if jumping else effect
    return OpcodeSpec(
        name, int(code), OperandKind[kind.upper()], int(caches), *packed, 0, effect, there
    )


def _read(version: Version) -> _Written:
    file = Path(__file__).parent / "tables" / f"{version[0]}.{version[1]}.txt"
    rows: dict[str, OpcodeSpec] = {}
    lists: dict[OperandKind, tuple[object, ...]] = {}
    for line in file.read_text(encoding="ascii").splitlines():
        if line.startswith("@"):
            name, *items = line[1:].split()
            kind = OperandKind[name.upper()]
            common = kind is OperandKind.COMMON
            lists[kind] = tuple(getattr(builtins, item) if common else item for item in items)
        elif not line.startswith("#"):
            row = _row(version, line)
            rows[row.opname] = row
    return _Written(rows, {row.code: name for name, row in rows.items()}, lists)


def _conditional(suffix: str, rows: Mapping[str, OpcodeSpec]) -> tuple[str, str | None]:
    plain = f"POP_JUMP_IF_{suffix}"
    if plain in rows:
        return plain, None
    return f"POP_JUMP_FORWARD_IF_{suffix}", f"POP_JUMP_BACKWARD_IF_{suffix}"


@functools.cache
def opcode_table(version: Version) -> OpcodeTable:
    """The table of a version that is supported."""
    written = _read(version)
    rows = written.rows
    directions: dict[str, tuple[str, str | None]] = {
        "JUMP": ("JUMP_FORWARD", "JUMP_BACKWARD"),
        "JUMP_NO_INTERRUPT": ("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
        **{name: (name, None) for name in _ONE_WAY if name in rows},
        **{f"POP_JUMP_IF_{suffix}": _conditional(suffix, rows) for suffix in CONDITIONAL_SUFFIXES},
    }
    canonical = {
        concrete: name for name, pair in directions.items() for concrete in pair if concrete
    }
    canonical |= {"JUMP_FORWARD": "JUMP"}
    canonical |= {name: plain for name, plain in _READ_AS.items() if name in rows}
    specs = dict(rows)
    for name, (forward, _) in directions.items():
        specs.setdefault(name, rows[forward])
    # what later versions have for LOAD_CLOSURE
    specs.setdefault("LOAD_CLOSURE", replace(rows["LOAD_FAST"], kind=OperandKind.CELL))
    fixed: dict[tuple[str, int], str] = {}
    for name, facts in _WRITTEN_AS.items():
        instead = since(facts, version)
        if instead is not None:
            row = rows[instead[0]]
            number = written.lists[row.kind].index(instead[1])
            specs[name] = replace(row, kind=OperandKind.NONE, fixed=number)
            fixed[row.opname, number] = name
    followers = {name: since(facts, version) for name, facts in _FOLLOWERS.items() if name in rows}
    return OpcodeTable(
        version=version,
        specs=specs,
        names=written.names,
        operators=written.lists,
        directions=directions,
        canonical=canonical,
        fixed=fixed,
        compare_masks=since(_COMPARE_MASKS, version) or {},
        followers={name: after for name, after in followers.items() if after is not None},
        null_above=bool(since(_NULL_ABOVE, version)),
        exit_depth=since(_EXIT_DEPTH, version) or 0,
        backward=frozenset(back for _, back in directions.values() if back is not None),
    )


RUNNING: Final[OpcodeTable] = opcode_table(VERSION)
