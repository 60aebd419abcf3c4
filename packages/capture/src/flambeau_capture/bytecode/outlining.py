"""Outlining: what a coroutine or a generator computes between its suspensions, as plain functions.

In: code whose frame runs in pieces. Out: the same code with calls in place of parts of it, and the
code of each part. Invariant: a part is entered at one instruction and left at one, or ends the
frame; it suspends nothing, takes nothing off the stack that was there before, and what it binds is
bound again by its caller, so that the frame looks at each suspension as it would have. Where it
raises, the variables that a handler reads are as they would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import CodeType

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.decode import CodeBody, Region, decode
from flambeau_capture.bytecode.flow import (
    TELLING,
    bound_before,
    covering,
    liveness,
    predecessors,
    successors,
    unbound_by_others,
)
from flambeau_capture.bytecode.instruction import Instruction, placed
from flambeau_capture.bytecode.opcodes import READS_SLOT, WRITES_SLOT, OpcodeTable
from flambeau_capture.bytecode.stack import depths, stack_effect
from flambeau_capture.reachability import reached


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SUSPENDS = _words("""
    SEND YIELD_VALUE RETURN_GENERATOR RESUME GET_AWAITABLE GET_AITER GET_ANEXT END_ASYNC_FOR
    BEFORE_ASYNC_WITH CLEANUP_THROW END_SEND JUMP_NO_INTERRUPT GET_YIELD_FROM_ITER
    ASYNC_GEN_WRAP MAKE_CELL COPY_FREE_VARS LOAD_SUPER_ATTR LOAD_NAME STORE_NAME
""")
_WRAPS = "INTRINSIC_ASYNC_GEN_WRAP"
_GIVES = frozenset({"YIELD_VALUE", "ASYNC_GEN_WRAP"})  # a value that a part may leave for it
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
_WORK = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_OP")
_CANNOT_RAISE = _words("""
    LOAD_CONST STORE_FAST LOAD_FAST NOP JUMP STORE_DEREF LOAD_CLOSURE POP_TOP PUSH_NULL COPY
    SWAP RETURN_VALUE RETURN_CONST
""")
# how much of the stack an instruction needs, where that is not what it takes for one result
_TAKES_NOTHING = _words("""
    NOP JUMP KW_NAMES DELETE_FAST DELETE_DEREF DELETE_GLOBAL RETURN_CONST
""")
_GIVES_NOTHING = _words("""
    STORE_FAST STORE_DEREF STORE_GLOBAL STORE_ATTR STORE_SUBSCR STORE_SLICE DELETE_ATTR
    DELETE_SUBSCR POP_TOP POP_EXCEPT POP_ITER RETURN_VALUE RAISE_VARARGS END_FOR
""")
_LOOKS_AT = {
    "LOAD_ATTR": 1, "LOAD_METHOD": 1, "IMPORT_FROM": 1, "GET_LEN": 1, "BEFORE_WITH": 1,
    "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1, "UNPACK_SEQUENCE": 1, "UNPACK_EX": 1, "FOR_ITER": 1,
    "MATCH_KEYS": 2, "PUSH_EXC_INFO": 1, "CHECK_EXC_MATCH": 2, "RERAISE": 2, "LOAD_SPECIAL": 1,
}  # fmt: skip
_LOOKS_DEEPER = {
    "COPY": 0, "SWAP": 0, "PRECALL": 2, "LIST_APPEND": 1, "SET_ADD": 1, "LIST_EXTEND": 1,
    "SET_UPDATE": 1, "DICT_UPDATE": 1, "DICT_MERGE": 1, "MAP_ADD": 2,
}  # fmt: skip

Parts = set[Instruction]
_VALUE = "___value"  # the variable of a part's function for what it leaves on the stack


@dataclass(frozen=True)
class Part:
    """Instructions that run elsewhere: entered at `start`; `end` comes after them, or nothing does.

    given, bound: variables that it reads and that it leaves. leaves: whether there is one value
    more on the stack at its end."""

    start: Instruction
    end: Instruction | None
    inside: frozenset[Instruction]
    given: tuple[str, ...]
    bound: tuple[str, ...]
    leaves: bool


def _needed(instruction: Instruction, table: OpcodeTable) -> int:
    """How many values have to be on the stack."""
    name = instruction.opname
    if name == "WITH_EXCEPT_START":
        return table.exit_depth
    if name in _TAKES_NOTHING:
        return 0
    if name in _LOOKS_AT:
        return _LOOKS_AT[name]
    if name in _LOOKS_DEEPER:
        return int(instruction.arg or 0) + _LOOKS_DEEPER[name]
    if name in _GIVES_NOTHING or name.startswith("POP_JUMP"):
        return -stack_effect(instruction, jump=False, table=table)
    return max(0, 1 - stack_effect(instruction, jump=False, table=table))


class _Finder:
    """Finds the parts of one body."""

    def __init__(self, body: CodeBody) -> None:
        self.body = body
        self.at = depths(body)
        self.regions = covering(body)
        self.following = successors(body)
        self.before = predecessors(body)
        self.live = liveness(body)
        self.bound = bound_before(body)
        self.others = unbound_by_others(body.code)
        self.cells = {*body.code.co_cellvars, *body.code.co_freevars}
        self.cleared = {
            str(i.argval) for i in body.instructions if i.opname == "LOAD_FAST_AND_CLEAR"
        }

    def suspends(self, instruction: Instruction) -> bool:
        name, shown = instruction.opname, instruction.argval
        if name in ("LOAD_DEREF", "DELETE_DEREF"):  # of an empty cell they say whose it is
            unsure = shown in self.others or shown not in self.bound.get(instruction, ())
            return shown in self.body.code.co_cellvars and unsure
        if name == "RAISE_VARARGS" and not instruction.arg:  # it looks at what a caller handles
            return True
        if name == "CALL_INTRINSIC_1":
            return shown == _WRAPS
        if name == "LOAD_SPECIAL":
            return str(shown).startswith("__a")
        return name in _SUSPENDS or (name == "LOAD_GLOBAL" and shown in TELLING)

    def parts(self) -> Iterator[Part]:
        order = self.body.instructions
        done: Parts = set()
        for place, start in enumerate(order):
            if start in done or start not in self.at or self.suspends(start):
                continue
            if place and order[place - 1].opname in self.body.table.followers:
                continue
            found = self._largest(start, order[place + 1 :], done)
            if found is not None:
                done |= found.inside
                yield found

    def _largest(self, start: Instruction, rest: list[Instruction], done: Parts) -> Part | None:
        best = self._part(start, None, done)
        if best is not None:
            return best
        for last, end in pairwise([start, *rest]):
            if end not in self.at or end in done or last.opname in self.body.table.followers:
                continue
            more = self.at[end] - self.at[start]
            gives = more == 1 and (end.opname in _GIVES or self._wraps(end))
            if self._handler(end) != self._handler(start) or not (more == 0 or gives):
                continue
            best = self._part(start, end, done) or best
        return best

    def _wraps(self, instruction: Instruction) -> bool:
        return instruction.opname == "CALL_INTRINSIC_1" and instruction.argval == _WRAPS

    def _handler(self, instruction: Instruction) -> Instruction | None:
        region = self.regions.get(instruction)
        return None if region is None else region.handler

    def _inside(self, start: Instruction, end: Instruction | None) -> Parts | None:
        """What control comes to before `end`; None where that suspends."""
        found: Parts = set()
        pending = [start]
        outer = self._handler(start)
        while pending:
            one = pending.pop()
            if one is end or one in found:
                continue
            if self.suspends(one):
                return None
            found.add(one)
            pending += self.following[one]
            handler = self._handler(one)
            if handler is not None and handler is not outer:
                pending.append(handler)
        return found

    def _part(self, start: Instruction, end: Instruction | None, done: Parts) -> Part | None:
        inside = self._inside(start, end)
        if not inside or inside & done or not any(one.opname in _WORK for one in inside):
            return None
        floor, outer = self.at[start], self._handler(start)
        for one in inside:
            region = self.regions.get(one)
            if region is not None and region.handler is not outer and region.depth < floor:
                return None
            if self.at[one] - _needed(one, self.body.table) < floor:
                return None
            if one is not start and not self.before[one] <= inside:
                return None
            if end is not None and one.opname in _RETURNS:
                return None
        if end is None and not any(one.opname in _RETURNS for one in inside):
            return None
        handlers = {r.handler for i, r in self.regions.items() if i not in inside}
        if (inside - {start}) & handlers or start in handlers:
            return None
        return self._with_variables(start, end, inside)

    def _with_variables(
        self, start: Instruction, end: Instruction | None, inside: Parts
    ) -> Part | None:
        written = self._names(inside, WRITES_SLOT)
        read = self._names(inside, READS_SLOT) & self.live[start]
        here = self.bound[start]
        if not read - self.cleared <= here:
            return None
        outer = self._handler(start)
        if outer is not None and any(
            self._raises_after(name, inside) for name in written & self.live[outer]
        ):
            return None
        kept: set[str] = set()
        if end is not None:
            kept = {n for n in written & self.bound[end] if n not in self.cleared or n in here}
            unsure = written - kept
            if unsure & (self.live[end] | here) or any(self._stays(n, inside) for n in unsure):
                return None
        names = self.body.code.co_varnames
        leaves = end is not None and self.at[end] > self.at[start]
        given = sorted((read | (kept & here)) & here, key=names.index)
        return Part(
            start,
            end,
            frozenset(inside),
            tuple(given),
            tuple(sorted(kept, key=names.index)),
            leaves,
        )

    def _names(self, inside: Parts, kinds: frozenset[str]) -> frozenset[str]:
        found = {str(one.argval) for one in inside if one.opname in kinds}
        return frozenset(found - self.cells)

    def _stays(self, name: str, inside: Parts) -> bool:
        """Whether a variable may have a value at the end that it was given inside."""
        stores = [one for one in inside if one.opname == "STORE_FAST" and one.argval == name]

        def following(one: Instruction) -> tuple[Instruction, ...]:
            if one not in inside or (one.opname == "DELETE_FAST" and one.argval == name):
                return ()
            handler = self._handler(one)
            goals = self.following[one]
            return goals if handler is None or handler not in inside else (*goals, handler)

        starts = (goal for one in stores for goal in self.following[one])
        return any(one not in inside for one in reached(starts, following))

    def _raises_after(self, name: str, inside: Parts) -> bool:
        """Whether something may raise once a variable was written."""
        writes = (one for one in inside if one.opname in WRITES_SLOT and one.argval == name)
        starts = (goal for one in writes for goal in self.following[one])
        later = reached(starts, lambda one: self.following[one] if one in inside else ())
        return any(one in inside and one.opname not in _CANNOT_RAISE for one in later)


def code_of(part: Part, body: CodeBody, function: Callable[..., CodeType]) -> CodeType:
    """The code of a part's function; `function` makes it of a body, as for a resume function."""
    _, twin = body.copy()
    free = (*body.code.co_freevars, *body.code.co_cellvars)
    floor = depths(body)[part.start]
    leave: list[Instruction] = []
    if part.end is not None:
        left = [*part.bound, *([_VALUE] if part.leaves else [])]
        leave = [*spelling.store_fast(_VALUE)] if part.leaves else []
        leave += [one for name in left for one in spelling.load_fast_bound(name)]
        number = len(part.bound) + part.leaves
        leave += [] if number == 1 else spelling.build_tuple(number)
        leave += spelling.return_value()
        placed(leave, part.end.positions)
    made = [*placed([*spelling.prefix((), free), *spelling.jump(twin[part.start])],
                    part.start.positions)]  # fmt: skip
    following = successors(body)
    for one in body.instructions:
        if one not in part.inside:
            continue
        mine = twin[one]
        if part.end is not None and mine.target is twin[part.end]:
            mine.target = leave[0]
        made.append(mine)
        falls = following[one][:1] if one.target is None or len(following[one]) > 1 else ()
        if part.end is not None and part.end in falls and one.opname != "JUMP":
            made += placed(spelling.jump(leave[0]), one.positions)
    outer = covering(body).get(part.start)
    rows = {twin[i]: r for i, r in covering(body).items() if i in part.inside}
    if outer is not None:
        rows = {i: r for i, r in rows.items() if r.handler is not outer.handler}
    regions = [
        Region(run[0], run[-1], twin[row.handler], row.depth - floor, row.lasti)
        for row, run in _runs([*made, *leave], rows)
    ]
    return function(CodeBody([*made, *leave], body.code, regions), part.given)


def _runs(
    instructions: list[Instruction], rows: dict[Instruction, Region]
) -> Iterator[tuple[Region, list[Instruction]]]:
    for row, run in groupby(instructions, key=rows.get):
        if row is not None:
            yield row, [*run]


def outlined(body: CodeBody, parts: list[tuple[Part, object]]) -> CodeBody:
    """The body with a call of each part's function, or of what makes it of its cells, in place of
    its instructions."""
    rows = dict(covering(body))
    at = {part.start: (part, fn) for part, fn in parts}
    gone = frozenset[Instruction]().union(*(part.inside for part, _ in parts))
    begins: dict[Instruction, Instruction] = {}
    made: list[Instruction] = []
    free = (*body.code.co_freevars, *body.code.co_cellvars)
    for one in body.instructions:
        if one in at:
            part, fn = at[one]
            call = _call(part, fn, free)
            placed(call, one.positions)
            begins[one] = call[0]
            made += call
            if one in rows:
                rows.update(dict.fromkeys(call, rows[one]))
        elif one not in gone:
            made.append(one)
    for one in made:
        if one.target is not None:
            one.target = begins.get(one.target, one.target)
    regions = [Region(run[0], run[-1], r.handler, r.depth, r.lasti) for r, run in _runs(made, rows)]
    return CodeBody(made, body.code, regions)


def _call(part: Part, fn: object, free: tuple[str, ...]) -> list[Instruction]:
    load = spelling.load_const(fn)
    made: list[Instruction] = []
    if free:  # `fn` makes the function of its cells
        cells = [one for name in free for one in spelling.load_closure(name)]
        made += [*spelling.callable_from(load), *cells, *spelling.build_tuple(len(free))]
        made += [*spelling.call(1), *spelling.callable_on_top()]
    else:
        made += spelling.callable_from(load)
    made += [one for name in part.given for one in spelling.load_fast_bound(name)]
    made += spelling.call(len(part.given))
    if part.end is None:
        return [*made, *spelling.return_value()]
    number = len(part.bound) + part.leaves
    if number != 1:
        made += spelling.unpack_sequence(number) if number else spelling.pop_top()
    made += [one for name in part.bound for one in spelling.store_fast(name)]
    return [*made, *spelling.jump(part.end)]


def find_parts(code: CodeType) -> tuple[CodeBody, list[Part]]:
    """What may be outlined of code, in its order."""
    body = decode(code)
    return body, [*_Finder(body).parts()]
