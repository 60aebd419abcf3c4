"""Version-independent spelling of common operations.

In: what to do, in plain words. Out: the instructions that do it, fresh at each call. Invariant: a
caller that uses only these functions and direction-free jumps needs to know no version, as long as
it prepares calls with `callable_from` or `callable_on_top` before it pushes their arguments. In
comments the stack is written bottom first: `a, b -> c` takes b from the top and a below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from types import CodeType

from flambeau_capture.bytecode.instruction import NO_FLAGS, Instruction, OperandFlags
from flambeau_capture.bytecode.opcodes import CONDITIONAL_SUFFIXES, RUNNING

SPECS = RUNNING.specs
NULL_ABOVE = RUNNING.null_above
METHOD_BY_ATTR = "LOAD_METHOD" not in SPECS  # a method load is a flag of LOAD_ATTR
BOOL_FIRST = "TO_BOOL" in SPECS  # branches and `not` take only True and False
PRECALL = "PRECALL" in SPECS
CALL_KW = "CALL_KW" in SPECS
FUNCTION_ATTRIBUTES = "SET_FUNCTION_ATTRIBUTE" in SPECS

# MAKE_FUNCTION's operand, and SET_FUNCTION_ATTRIBUTE's, in the order in which they are pushed.
DEFAULTS, KWDEFAULTS, ANNOTATIONS, CLOSURE, ANNOTATE = 1, 2, 4, 8, 16

Spelled = list[Instruction]


def _one(opname: str, arg: int | None = None) -> Spelled:
    return [Instruction(opname, arg)]


def _named(opname: str, name: str, flags: OperandFlags = NO_FLAGS) -> Spelled:
    return [Instruction(opname, argval=name, flags=flags)]


# Of a name
load_fast = partial(_named, RUNNING.checked_load or "LOAD_FAST")
load_fast_bound = partial(_named, "LOAD_FAST")  # from 3.12 on an unbound variable crashes
store_fast = partial(_named, "STORE_FAST")
delete_fast = partial(_named, "DELETE_FAST")
load_deref = partial(_named, "LOAD_DEREF")  # -> the content of the cell
store_deref = partial(_named, "STORE_DEREF")
delete_deref = partial(_named, "DELETE_DEREF")
load_closure = partial(_named, "LOAD_CLOSURE")  # -> the cell itself, for a closure tuple
store_global = partial(_named, "STORE_GLOBAL")
load_attr = partial(_named, "LOAD_ATTR")  # object -> attribute
store_attr = partial(_named, "STORE_ATTR")  # value, object ->

# Of a number
copy = partial(_one, "COPY")  # pushes the value so many places down again; 1 is the top
dup_top = partial(copy, 1)
swap = partial(_one, "SWAP")  # exchanges the top with the value so many places down; 2 is below it
build_tuple = partial(_one, "BUILD_TUPLE")
build_list = partial(_one, "BUILD_LIST")
build_map = partial(_one, "BUILD_MAP")  # key, value, ... (so many pairs) -> dict
unpack_sequence = partial(_one, "UNPACK_SEQUENCE")  # sequence -> its items, the first on top
raise_varargs = partial(_one, "RAISE_VARARGS")  # [exception[, cause]] ->

# Of nothing
binary_subscr = partial(_one, "BINARY_SUBSCR")  # container, key -> item
store_subscr = partial(_one, "STORE_SUBSCR")  # value, container, key ->
nop = partial(_one, "NOP")
pop_top = partial(_one, "POP_TOP")
push_null = partial(_one, "PUSH_NULL")  # `callable_from` and `callable_on_top` place it for calls
return_value = partial(_one, "RETURN_VALUE")
resume = partial(_one, "RESUME", 0)  # of a function's start, for tracing and interrupts


def load_const(value: object) -> Spelled:
    """-> value. Objects of any type are allowed; they live as long as the code object."""
    return [Instruction("LOAD_CONST", argval=value)]


def take_fast(name: str) -> Spelled:
    """-> the local variable, known to be bound, which has no value any more."""
    return [*load_fast_bound(name), *delete_fast(name)]


def load_global(name: str, push_null: bool = False) -> Spelled:
    """-> the global or builtin; with `push_null` ready to be called, arguments next."""
    return _named("LOAD_GLOBAL", name, OperandFlags(push_null=push_null))


def load_method(name: str) -> Spelled:
    """object -> a callable ready for arguments, for `call`."""
    if METHOD_BY_ATTR:
        return _named("LOAD_ATTR", name, OperandFlags(method=True))
    return _named("LOAD_METHOD", name)


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


def to_bool() -> Spelled:
    """value -> its truth value, where the branch that follows needs one; nothing elsewhere."""
    return _one("TO_BOOL") if BOOL_FIRST else []


def jump(target: Instruction) -> Spelled:
    return [Instruction("JUMP", target=target)]


def jump_if(kind: str, target: Instruction) -> Spelled:
    """value -> ; jumps if it is "true", "false", "none" or "not_none"."""
    suffix = kind.upper()
    if suffix not in CONDITIONAL_SUFFIXES:
        raise ValueError(f"no condition {kind!r}; known: true, false, none, not_none")
    test = to_bool() if suffix in ("TRUE", "FALSE") else []
    return [*test, Instruction(f"POP_JUMP_IF_{suffix}", target=target)]


def end_for() -> Spelled:
    """The target of an exhausted loop: the iterator is gone after it."""
    return [one for name in RUNNING.loop_end for one in _one(name)] or nop()


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
