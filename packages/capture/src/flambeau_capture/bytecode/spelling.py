"""Version-independent spelling of common operations.

In: what to do, in plain words. Out: the instructions that do it, fresh at each call. Invariant: a
caller that uses only these functions and direction-free jumps needs to know no version, as long as
it prepares calls with `callable_from` or `callable_on_top` before it pushes their arguments.

The stack is written bottom first: `a, b -> c` takes b from the top and a below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from flambeau_capture.bytecode.instruction import NO_FLAGS, Instruction, OperandFlags
from flambeau_capture.bytecode.opcodes import (
    BINARY_OPERATORS,
    COMPARE_OPERATORS,
    CONDITIONAL_SUFFIXES,
    SPECS,
    VERSION,
)

NULL_ABOVE = VERSION >= (3, 13)  # a call's NULL lies above the callable, else below it
METHOD_BY_ATTR = VERSION >= (3, 12)  # a method load is a flag of LOAD_ATTR
BOOL_FIRST = "TO_BOOL" in SPECS  # branches and `not` take only True and False
PRECALL = "PRECALL" in SPECS
CALL_KW = "CALL_KW" in SPECS
FUNCTION_ATTRIBUTES = "SET_FUNCTION_ATTRIBUTE" in SPECS

# MAKE_FUNCTION's operand, and SET_FUNCTION_ATTRIBUTE's, in the order in which they are pushed.
DEFAULTS, KWDEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8

Spelled = list[Instruction]


def _one(opname: str, arg: int | None = None) -> Spelled:
    return [Instruction(opname, arg)]


def _named(opname: str, name: str, flags: OperandFlags = NO_FLAGS) -> Spelled:
    return [Instruction(opname, argval=name, flags=flags)]


# Values and variables


def load_const(value: object) -> Spelled:
    """-> value. Objects of any type are allowed; they live as long as the code object."""
    return [Instruction("LOAD_CONST", argval=value)]


def load_fast(name: str) -> Spelled:
    """-> the local variable; UnboundLocalError if it is unbound."""
    return _named("LOAD_FAST_CHECK" if "LOAD_FAST_CHECK" in SPECS else "LOAD_FAST", name)


def load_fast_bound(name: str) -> Spelled:
    """-> the local variable, known to be bound; from 3.12 on an unbound one crashes."""
    return _named("LOAD_FAST", name)


def store_fast(name: str) -> Spelled:
    return _named("STORE_FAST", name)


def delete_fast(name: str) -> Spelled:
    return _named("DELETE_FAST", name)


def take_fast(name: str) -> Spelled:
    """-> the local variable, known to be bound, which has no value any more."""
    return [*load_fast_bound(name), *delete_fast(name)]


def load_deref(name: str) -> Spelled:
    """-> what the cell of the name holds."""
    return _named("LOAD_DEREF", name)


def store_deref(name: str) -> Spelled:
    return _named("STORE_DEREF", name)


def delete_deref(name: str) -> Spelled:
    return _named("DELETE_DEREF", name)


def load_closure(name: str) -> Spelled:
    """-> the cell itself, to be put in a closure tuple."""
    return _named("LOAD_CLOSURE", name)


def load_global(name: str, push_null: bool = False) -> Spelled:
    """-> the global or builtin; with `push_null` ready to be called, arguments next."""
    return _named("LOAD_GLOBAL", name, OperandFlags(push_null=push_null))


def store_global(name: str) -> Spelled:
    return _named("STORE_GLOBAL", name)


def delete_global(name: str) -> Spelled:
    return _named("DELETE_GLOBAL", name)


def load_build_class() -> Spelled:
    return _one("LOAD_BUILD_CLASS")


def import_name(name: str) -> Spelled:
    """level, fromlist -> module."""
    return _named("IMPORT_NAME", name)


def import_from(name: str) -> Spelled:
    """module -> module, attribute."""
    return _named("IMPORT_FROM", name)


# Attributes and items


def load_attr(name: str) -> Spelled:
    """object -> attribute."""
    return _named("LOAD_ATTR", name)


def load_method(name: str) -> Spelled:
    """object -> a callable ready for arguments, for `call`."""
    if METHOD_BY_ATTR:
        return _named("LOAD_ATTR", name, OperandFlags(method=True))
    return _named("LOAD_METHOD", name)


def store_attr(name: str) -> Spelled:
    """value, object ->"""
    return _named("STORE_ATTR", name)


def delete_attr(name: str) -> Spelled:
    """object ->"""
    return _named("DELETE_ATTR", name)


def binary_subscr() -> Spelled:
    """container, key -> item."""
    return _one("BINARY_SUBSCR")


def store_subscr() -> Spelled:
    """value, container, key ->"""
    return _one("STORE_SUBSCR")


def delete_subscr() -> Spelled:
    """container, key ->"""
    return _one("DELETE_SUBSCR")


# The stack itself


def nop() -> Spelled:
    return _one("NOP")


def pop_top() -> Spelled:
    return _one("POP_TOP")


def pop(count: int) -> Spelled:
    """Drop the top `count` values."""
    return [instruction for _ in range(count) for instruction in pop_top()]


def push_null() -> Spelled:
    """-> NULL. `callable_from` and `callable_on_top` know where a call wants it."""
    return _one("PUSH_NULL")


def copy(depth: int) -> Spelled:
    """Push the value `depth` places down again; 1 is the top."""
    return _one("COPY", depth)


def dup_top() -> Spelled:
    return copy(1)


def swap(depth: int) -> Spelled:
    """Exchange the top with the value `depth` places down; 2 is the one below it."""
    return _one("SWAP", depth)


def rot_down(depth: int) -> Spelled:
    """Move the top to be the `depth`-th value; those it passes move up in order."""
    return [i for place in range(depth, 1, -1) for i in swap(place)]


def rot_up(depth: int) -> Spelled:
    """Bring the `depth`-th value to the top; those above it move down in order."""
    return [i for place in range(2, depth + 1) for i in swap(place)]


# Calls


def callable_from(load: Iterable[Instruction]) -> Spelled:
    """Run `load`, which pushes one callable, and make it ready for arguments."""
    load = list(load)
    return [*load, *push_null()] if NULL_ABOVE else [*push_null(), *load]


def callable_on_top() -> Spelled:
    """callable -> the same, ready for arguments."""
    return push_null() if NULL_ABOVE else [*push_null(), *swap(2)]


def call(nargs: int, kwnames: Sequence[str] = ()) -> Spelled:
    """ready callable, arguments -> result. The last len(kwnames) of `nargs` are by keyword."""
    names = tuple(kwnames)
    if len(names) > nargs:
        raise ValueError(f"{len(names)} keyword arguments among {nargs}")
    if names and CALL_KW:
        return [*load_const(names), *_one("CALL_KW", nargs)]
    keywords = [Instruction("KW_NAMES", argval=names)] if names else []
    precall = _one("PRECALL", nargs) if PRECALL else []
    return [*keywords, *precall, *_one("CALL", nargs)]


def call_ex(has_kwargs: bool) -> Spelled:
    """ready callable, tuple[, dict] -> result."""
    return _one("CALL_FUNCTION_EX", int(has_kwargs))


# Containers


def build_tuple(count: int) -> Spelled:
    return _one("BUILD_TUPLE", count)


def build_list(count: int) -> Spelled:
    return _one("BUILD_LIST", count)


def build_set(count: int) -> Spelled:
    return _one("BUILD_SET", count)


def build_map(count: int) -> Spelled:
    """key, value, ... (`count` pairs) -> dict."""
    return _one("BUILD_MAP", count)


def build_slice(count: int) -> Spelled:
    """start, stop[, step] -> slice; `count` is 2 or 3."""
    return _one("BUILD_SLICE", count)


def build_string(count: int) -> Spelled:
    return _one("BUILD_STRING", count)


def list_append(depth: int) -> Spelled:
    """Append the top to the list that is then `depth` places down."""
    return _one("LIST_APPEND", depth)


def list_extend(depth: int) -> Spelled:
    return _one("LIST_EXTEND", depth)


def set_update(depth: int) -> Spelled:
    return _one("SET_UPDATE", depth)


def dict_update(depth: int) -> Spelled:
    return _one("DICT_UPDATE", depth)


def dict_merge(depth: int) -> Spelled:
    """Like dict_update, for `f(**kwargs)`: a key that is there already is an error."""
    return _one("DICT_MERGE", depth)


def unpack_sequence(count: int) -> Spelled:
    """sequence -> its items, the first on top."""
    return _one("UNPACK_SEQUENCE", count)


def get_iter() -> Spelled:
    return _one("GET_ITER")


# Operators


def binary_op(operator: str) -> Spelled:
    """left, right -> result; `operator` is "+", or "+=" for the in-place form."""
    if operator not in BINARY_OPERATORS:
        raise ValueError(f"no binary operator {operator!r}; known: {', '.join(BINARY_OPERATORS)}")
    return _named("BINARY_OP", operator)


def compare_op(operator: str) -> Spelled:
    """left, right -> what the comparison gives, which need not be a bool."""
    if operator not in COMPARE_OPERATORS:
        raise ValueError(f"no comparison {operator!r}; known: {', '.join(COMPARE_OPERATORS)}")
    return _named("COMPARE_OP", operator)


def is_op(invert: bool = False) -> Spelled:
    """left, right -> `left is right`, inverted `left is not right`."""
    return _one("IS_OP", int(invert))


def contains_op(invert: bool = False) -> Spelled:
    """item, container -> `item in container`, inverted `item not in container`."""
    return _one("CONTAINS_OP", int(invert))


def unary_not() -> Spelled:
    return [*to_bool(), *_one("UNARY_NOT")]


def unary_negative() -> Spelled:
    return _one("UNARY_NEGATIVE")


def unary_invert() -> Spelled:
    return _one("UNARY_INVERT")


def to_bool() -> Spelled:
    """value -> its truth value, where the branch that follows needs one; nothing elsewhere."""
    return _one("TO_BOOL") if BOOL_FIRST else []


# Control


def jump(target: Instruction) -> Spelled:
    return [Instruction("JUMP", target=target)]


def jump_if(kind: str, target: Instruction) -> Spelled:
    """value -> ; jumps if it is "true", "false", "none" or "not_none"."""
    suffix = kind.upper()
    if suffix not in CONDITIONAL_SUFFIXES:
        raise ValueError(f"no condition {kind!r}; known: true, false, none, not_none")
    test = to_bool() if suffix in ("TRUE", "FALSE") else []
    return [*test, Instruction(f"POP_JUMP_IF_{suffix}", target=target)]


def for_iter(target: Instruction) -> Spelled:
    """iterator -> iterator, item; when exhausted goes to `target`, the first of `end_for()`."""
    return [Instruction("FOR_ITER", target=target)]


def end_for() -> Spelled:
    """What stands where an exhausted loop goes: the iterator is gone after it."""
    if "END_FOR" not in SPECS:
        return nop()
    return [*_one("END_FOR"), *(pop_top() if VERSION >= (3, 13) else [])]


def return_value() -> Spelled:
    return _one("RETURN_VALUE")


def raise_varargs(count: int) -> Spelled:
    """[exception[, cause]] -> ; `count` is 0 (raise again), 1 or 2."""
    return _one("RAISE_VARARGS", count)


# Functions


def make_function(code: CodeType, attributes: int = 0) -> Spelled:
    """[defaults][, kwdefaults][, annotations][, closure] -> function.

    `attributes` is a sum of DEFAULTS (a tuple), KWDEFAULTS (a dict), ANNOTATIONS (a tuple of names
    and values) and CLOSURE (a tuple of cells), which must have been pushed in this order.
    """
    if not FUNCTION_ATTRIBUTES:
        return [*load_const(code), *_one("MAKE_FUNCTION", attributes)]
    setters = [
        instruction
        for flag in (CLOSURE, ANNOTATIONS, KWDEFAULTS, DEFAULTS)
        if attributes & flag
        for instruction in _one("SET_FUNCTION_ATTRIBUTE", flag)
    ]
    return [*load_const(code), *_one("MAKE_FUNCTION"), *setters]


def prefix(cellvars: Sequence[str] = (), freevars: Sequence[str] = ()) -> Spelled:
    """What a plain function's code starts with, for the cells it declares to `assemble`."""
    copies = _one("COPY_FREE_VARS", len(freevars)) if freevars else []
    cells = [instruction for name in cellvars for instruction in _named("MAKE_CELL", name)]
    return [*copies, *cells, *resume()]


def resume() -> Spelled:
    """What tracing, interrupts and specialisation look for at a function's start."""
    return _one("RESUME", 0)
