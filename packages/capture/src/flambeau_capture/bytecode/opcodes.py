"""Opcode table of the running CPython.

In: the standard library's `opcode` tables and the running version. Out: `spec(opname)` (operand
kind, packed flags, inline caches), the concrete spelling of direction-free jumps, and the sets of
opcodes that end a block, read or write a variable, or must be followed by another one.
Invariant: every difference between CPython 3.11, 3.12 and 3.13 that decoding, assembling and the
analyses need is a row of a table here.
Source: Lib/dis.py, Lib/opcode.py and Python/bytecodes.c of the three versions.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

VERSION: Final[tuple[int, int]] = (sys.version_info[0], sys.version_info[1])
SUPPORTED: Final = ((3, 11), (3, 12), (3, 13))


class UnsupportedPython(RuntimeError):
    """The running CPython's bytecode is not one that this package knows."""


if VERSION not in SUPPORTED:
    raise UnsupportedPython(
        f"flambeau_capture reads the bytecode of CPython 3.11, 3.12 and 3.13; "
        f"this is {VERSION[0]}.{VERSION[1]}. Run it on one of those."
    )


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
    FREE_COUNT = "the number of free variables"
    JUMP = "a distance in code units"


@dataclass(frozen=True, slots=True)
class OpcodeSpec:
    """One opcode: number, operand kind, inline cache units, flag bits below the operand."""

    opname: str
    code: int
    kind: OperandKind
    caches: int
    shift: int = 0
    bits: tuple[tuple[str, int], ...] = ()


COMPARE_OPERATORS: Final[tuple[str, ...]] = tuple(opcode.cmp_op)
_NB_OPS = getattr(opcode, "_nb_ops")  # noqa: B009 - absent from the stubs
OPERATORS: Final[Mapping[OperandKind, tuple[str, ...]]] = {
    OperandKind.COMPARE: COMPARE_OPERATORS,
    OperandKind.BINARY: tuple(symbol for _, symbol in _NB_OPS),
    OperandKind.INTRINSIC_1: tuple(getattr(opcode, "_intrinsic_1_descs", ())),
    OperandKind.INTRINSIC_2: tuple(getattr(opcode, "_intrinsic_2_descs", ())),
}

# From 3.12 on a comparison's operand also holds the set of outcomes for which it is true
# (unordered 1, less 2, greater 4, equal 8), which the specialised forms test.
COMPARE_MASKS: Final[Mapping[str, int]] = (
    {"<": 2, "<=": 10, "==": 8, "!=": 7, ">": 4, ">=": 12}
    if VERSION >= (3, 12)
    else dict.fromkeys(COMPARE_OPERATORS, 0)
)

# opname -> (how far the operand is shifted, the flags in the bits below).
_PACKED: dict[str, tuple[int, tuple[tuple[str, int], ...]]] = {
    "LOAD_GLOBAL": (1, (("push_null", 1),))
}
if VERSION >= (3, 12):
    _PACKED["LOAD_ATTR"] = (1, (("method", 1),))
    _PACKED["LOAD_SUPER_ATTR"] = (2, (("method", 1), ("two_arg", 2)))
    _PACKED["COMPARE_OP"] = (4, ()) if VERSION < (3, 13) else (5, (("to_bool", 16),))

# Two plain instructions that 3.13's compiler writes as one: the high half byte is the first slot.
SUPERINSTRUCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}

CONDITIONAL_SUFFIXES: Final = ("TRUE", "FALSE", "NONE", "NOT_NONE")

_ONE_WAY = ("FOR_ITER", "SEND", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")


def _conditional(suffix: str) -> tuple[str, str | None]:
    if VERSION < (3, 12):
        return f"POP_JUMP_FORWARD_IF_{suffix}", f"POP_JUMP_BACKWARD_IF_{suffix}"
    return f"POP_JUMP_IF_{suffix}", None


# Direction-free jump -> (its forward spelling, its backward one); None: CPython has none.
DIRECTIONS: Final[Mapping[str, tuple[str, str | None]]] = {
    "JUMP": ("JUMP_FORWARD", "JUMP_BACKWARD"),
    "JUMP_NO_INTERRUPT": ("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    **{name: (name, None) for name in _ONE_WAY if name in opcode.opmap},
    **{f"POP_JUMP_IF_{suffix}": _conditional(suffix) for suffix in CONDITIONAL_SUFFIXES},
}

# Concrete jump -> direction-free name, for decoding.
CANONICAL: Final[Mapping[str, str]] = {
    "JUMP_FORWARD": "JUMP",
    **{
        concrete: name
        for name, pair in DIRECTIONS.items()
        for concrete in pair
        if concrete is not None and concrete != "JUMP_FORWARD"
    },
}

BACKWARD: Final[frozenset[str]] = frozenset(
    backward for _, backward in DIRECTIONS.values() if backward is not None
)

INVERSE: Final[Mapping[str, str]] = {
    f"POP_JUMP_IF_{one}": f"POP_JUMP_IF_{other}"
    for one, other in zip(CONDITIONAL_SUFFIXES, ("FALSE", "TRUE", "NOT_NONE", "NONE"))
}

UNCONDITIONAL: Final[frozenset[str]] = frozenset({"JUMP", "JUMP_NO_INTERRUPT"})

# Control never reaches the instruction written after one of these.
TERMINATORS: Final[frozenset[str]] = UNCONDITIONAL.union(
    ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT")
)

# Opcodes whose follower CPython takes for granted: it skips it, reads its cache, or (for
# YIELD_VALUE) looks at it to distinguish `yield` from `yield from`.
FOLLOWERS: Final[Mapping[str, str]] = {
    "YIELD_VALUE": "RESUME",
    **({"PRECALL": "CALL"} if VERSION == (3, 11) else {}),
    **({"END_FOR": "POP_TOP"} if VERSION >= (3, 13) else {}),
}

# From 3.12 on an exhausted FOR_ITER pops its iterator and skips the END_FOR that it points at.
FOR_ITER_TARGET: Final[str | None] = "END_FOR" if VERSION >= (3, 12) else None

# From 3.12 on LOAD_FAST does not look whether the variable is bound; this does.
CHECKED_LOAD: Final[str | None] = "LOAD_FAST_CHECK" if VERSION >= (3, 12) else None

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


def _inline_caches() -> dict[str, int]:
    table = getattr(opcode, "_inline_cache_entries")  # noqa: B009 - absent from the stubs
    if isinstance(table, dict):
        return dict(table)
    return {name: table[code] for name, code in opcode.opmap.items() if code < len(table)}


def _kinds() -> dict[str, OperandKind]:
    kinds: dict[str, OperandKind] = {}
    has_argument = frozenset(getattr(opcode, "hasarg", ()))
    groups: tuple[tuple[list[int], OperandKind], ...] = (
        (opcode.hasname, OperandKind.NAME),
        (opcode.hasconst, OperandKind.CONST),
        (opcode.haslocal, OperandKind.LOCAL),
        (opcode.hasfree, OperandKind.CELL),
        (opcode.hascompare, OperandKind.COMPARE),
        (opcode.hasjrel, OperandKind.JUMP),
        (opcode.hasjabs, OperandKind.JUMP),
    )
    for name, code in opcode.opmap.items():
        takes = code in has_argument if has_argument else code >= opcode.HAVE_ARGUMENT
        kinds[name] = OperandKind.NUMBER if takes else OperandKind.NONE
        for members, kind in groups:
            if code in members:
                kinds[name] = kind
    kinds["BINARY_OP"] = OperandKind.BINARY
    kinds["COPY_FREE_VARS"] = OperandKind.FREE_COUNT
    kinds["LOAD_CLOSURE"] = OperandKind.CELL
    if VERSION >= (3, 12):
        kinds["CALL_INTRINSIC_1"] = OperandKind.INTRINSIC_1
        kinds["CALL_INTRINSIC_2"] = OperandKind.INTRINSIC_2
    return kinds


def _build() -> dict[str, OpcodeSpec]:
    caches, kinds = _inline_caches(), _kinds()
    table: dict[str, OpcodeSpec] = {}
    for name, code in opcode.opmap.items():
        if code > 255:  # the compiler's pseudo-instructions are no bytecode
            continue
        shift, bits = _PACKED.get(name, (0, ()))
        table[name] = OpcodeSpec(name, code, kinds[name], caches.get(name, 0), shift, bits)
    for name, (forward, _) in DIRECTIONS.items():
        table.setdefault(name, table[forward])
    plain = table["LOAD_FAST"]  # what 3.13 has for LOAD_CLOSURE
    closure = OpcodeSpec("LOAD_CLOSURE", plain.code, OperandKind.CELL, plain.caches)
    table.setdefault("LOAD_CLOSURE", closure)
    return table


SPECS: Final[Mapping[str, OpcodeSpec]] = _build()
NAMES: Final[Mapping[int, str]] = {code: name for name, code in opcode.opmap.items() if code <= 255}


def spec(opname: str) -> OpcodeSpec:
    """The row of an opcode, by its own or its direction-free name."""
    try:
        return SPECS[opname]
    except KeyError:
        raise ValueError(f"CPython {VERSION[0]}.{VERSION[1]} has no opcode {opname!r}") from None


def _words(text: str) -> list[str]:
    return text.split()


_IN_311 = _words("""
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BINARY_SUBSCR BUILD_CONST_KEY_MAP
    BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE CACHE CALL
    CALL_FUNCTION_EX CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP COPY COPY_FREE_VARS
    DELETE_ATTR DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR DICT_MERGE
    DICT_UPDATE END_ASYNC_FOR EXTENDED_ARG FORMAT_VALUE FOR_ITER GET_AITER GET_ANEXT
    GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER IMPORT_FROM IMPORT_NAME IMPORT_STAR IS_OP
    JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD JUMP_IF_FALSE_OR_POP
    JUMP_IF_TRUE_OR_POP KW_NAMES LIST_APPEND LIST_EXTEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR
    LOAD_ATTR LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST
    LOAD_GLOBAL LOAD_METHOD LOAD_NAME MAKE_CELL MAKE_FUNCTION MAP_ADD MATCH_CLASS MATCH_KEYS
    MATCH_MAPPING MATCH_SEQUENCE NOP POP_EXCEPT POP_JUMP_BACKWARD_IF_FALSE
    POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE
    POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_TRUE POP_TOP PRECALL PREP_RERAISE_STAR PRINT_EXPR PUSH_EXC_INFO
    PUSH_NULL RAISE_VARARGS RERAISE RESUME RETURN_GENERATOR RETURN_VALUE SEND SETUP_ANNOTATIONS
    SET_ADD SET_UPDATE STORE_ATTR STORE_DEREF STORE_FAST STORE_GLOBAL STORE_NAME STORE_SUBSCR
    SWAP UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE
    WITH_EXCEPT_START YIELD_VALUE
""")

_NEW_IN_312 = _words("""
    BINARY_SLICE CALL_INTRINSIC_1 CALL_INTRINSIC_2 CLEANUP_THROW END_FOR END_SEND
    INTERPRETER_EXIT LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK LOAD_FROM_DICT_OR_DEREF
    LOAD_FROM_DICT_OR_GLOBALS LOAD_LOCALS LOAD_SUPER_ATTR POP_JUMP_IF_FALSE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE RESERVED RETURN_CONST STORE_SLICE
""")

_GONE_IN_312 = _words("""
    ASYNC_GEN_WRAP IMPORT_STAR JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP LIST_TO_TUPLE
    LOAD_CLASSDEREF LOAD_METHOD POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE
    POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE PRECALL
    PREP_RERAISE_STAR PRINT_EXPR UNARY_POSITIVE
""")

_NEW_IN_313 = _words("""
    CALL_KW CONVERT_VALUE ENTER_EXECUTOR EXIT_INIT_CHECK FORMAT_SIMPLE FORMAT_WITH_SPEC
    LOAD_FAST_LOAD_FAST SET_FUNCTION_ATTRIBUTE STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST
    TO_BOOL
""")

_GONE_IN_313 = ["FORMAT_VALUE", "KW_NAMES", "LOAD_CLOSURE"]

# 3.12 on: what CPython writes over an instruction while tracing or monitoring is on
_WATCHED_IN_312 = _words("""
    CALL CALL_FUNCTION_EX END_FOR END_SEND FOR_ITER INSTRUCTION JUMP_BACKWARD JUMP_FORWARD LINE
    LOAD_SUPER_ATTR POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE
    RESUME RETURN_CONST RETURN_VALUE YIELD_VALUE
""")


_INSTRUMENTED = {f"INSTRUMENTED_{name}" for name in _WATCHED_IN_312}
_311 = frozenset(_IN_311)
_312 = (_311 - {*_GONE_IN_312}) | {*_NEW_IN_312} | _INSTRUMENTED
_313 = (_312 - {*_GONE_IN_313}) | {*_NEW_IN_313, "INSTRUMENTED_CALL_KW"}

OPCODES: Final[Mapping[tuple[int, int], frozenset[str]]] = {
    (3, 11): _311,
    (3, 12): _312,
    (3, 13): _313,
}
