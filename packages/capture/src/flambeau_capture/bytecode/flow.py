"""Control flow and liveness: successors, basic blocks, dead code, live variables.

In: a body. Out: `covering` (the exception region of each instruction), `successors`,
`predecessors`, `reachable`, `blocks`, a body without its dead code, `liveness`. Invariant: a region
covers instructions of its body only; a name that is not live is one whose slot nothing can read
before writing it. Exceptions are edges. Every access through a cell needs it; before 3.12 `super()`
reads the first variable and `__class__` unnamed. `locals()`, `eval` and frame inspection are not
seen: their caller keeps all.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType

from flambeau_capture.bytecode.decode import CodeBody, Region, argument_count, decode
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import READS_SLOT, TERMINATORS, WRITES_SLOT
from flambeau_capture.reachability import reached

Names = frozenset[str]


class FlowError(ValueError):
    """A jump or an exception region names an instruction that is not in the body."""


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions that run one after the other, entered only at the first.

    successors: indices of the blocks that control may go to from the last instruction.
    handler: index of the block where an exception in this one goes, if it is caught here.
    """

    index: int
    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]
    handler: int | None


def positions_in(body: CodeBody) -> dict[Instruction, int]:
    """Index of each instruction; raises FlowError if one stands in the list twice."""
    where = {instruction: index for index, instruction in enumerate(body.instructions)}
    if len(where) != len(body.instructions):
        raise FlowError("an instruction stands in the body twice; clone it")
    return where


def covering(body: CodeBody) -> dict[Instruction, Region]:
    """The region that catches each instruction's exceptions; absent: none does."""
    where = positions_in(body)
    spans = []
    for region in body.regions:
        for end in (region.start, region.end, region.handler):
            if end not in where:
                raise FlowError(f"an exception region names {end!r}, which is not in the body")
        first, last = where[region.start], where[region.end]
        if first > last:
            raise FlowError(f"an exception region ends at {region.end!r}, before its start")
        spans.append((first, -last, region))
    found: dict[Instruction, Region] = {}
    for first, negative_last, region in sorted(spans, key=lambda span: span[:2]):
        for index in range(first, 1 - negative_last):
            found[body.instructions[index]] = region  # inner regions come later and win
    return found


def successors(body: CodeBody) -> dict[Instruction, tuple[Instruction, ...]]:
    """Where control may go from each instruction without an exception: fall-through, then jump."""
    where = positions_in(body)
    following: dict[Instruction, tuple[Instruction, ...]] = {}
    for index, instruction in enumerate(body.instructions):
        goals: list[Instruction] = []
        if instruction.opname not in TERMINATORS and index + 1 < len(body.instructions):
            goals.append(body.instructions[index + 1])
        if instruction.target is not None:
            if instruction.target not in where:
                raise FlowError(f"{instruction!r} jumps to an instruction not in the body")
            goals.append(instruction.target)
        following[instruction] = tuple(goals)
    return following


def reachable(body: CodeBody, start: Instruction | None = None) -> set[Instruction]:
    """Instructions that control can come to from `start` (by default the first one)."""
    if not body.instructions:
        return set()
    following, regions = successors(body), covering(body)

    def goals(one: Instruction) -> tuple[Instruction, ...]:
        return (*following[one], regions[one].handler) if one in regions else following[one]

    return {*reached([body.instructions[0] if start is None else start], goals)}


def ends_loop(body: CodeBody, jump: Instruction) -> bool:
    """Whether a conditional jump decides if a loop goes on which nothing else ends by itself, as a
    `while` does: a `for` ends with its iterator, whatever the jump decides."""
    where = positions_in(body)
    at = where[jump]
    around = {
        each
        for each in body.instructions[:at]
        if each.opname == "FOR_ITER" and each.target is not None and where[each.target] > at
    }
    again = [_leads_to(body, [goal], [jump], around) for goal in successors(body)[jump]]
    return any(again) and not all(again)


def _leads_to(
    body: CodeBody,
    starts: Iterable[Instruction],
    goals: Collection[Instruction],
    without: Collection[Instruction] = (),
) -> bool:
    """Whether control can come from some instructions to one of others by none of the last."""
    following = successors(body)
    found = reached(starts, lambda one: () if one in without else following[one])
    return any(one in goals for one in found)


def between(body: CodeBody, start: int, end: int | None) -> set[Instruction]:
    """Instructions that control can come to from one without the end."""
    following = successors(body)
    found = set() if end is None else {body.instructions[end]}
    pending = [body.instructions[start]]
    while pending:
        instruction = pending.pop()
        if instruction not in found:
            found.add(instruction)
            pending += following[instruction]
    return found - (set() if end is None else {body.instructions[end]})


def meeting(body: CodeBody, jump: Instruction) -> int | None:
    """The first instruction that control comes to from a conditional jump whichever way it goes,
    unless an exception is raised; None: a way leads to a return of its own.

    The immediate post-dominator, by Cooper, Harvey and Kennedy's algorithm on reversed edges.
    """
    following = successors(body)
    leading: dict[Instruction | None, list[Instruction]] = defaultdict(list)
    for each, goals in following.items():
        for one in goals:
            leading[one].append(each)
    leading[None] = [each for each in body.instructions if each.opname in _RETURNS]
    order = _postorder(leading)
    number: dict[Instruction | None, int] = {each: place for place, each in enumerate(order)}
    above: dict[Instruction | None, Instruction | None] = {None: None}
    changed = True
    while changed:
        changed = False
        for each in filter(None, reversed(order)):
            after: list[Instruction | None] = [*following[each]]
            if each.opname in _RETURNS:
                after.append(None)
            known = [one for one in after if one in above]
            best = known[0]
            for goal in known[1:]:
                while goal is not best:
                    if number[goal] < number[best]:
                        goal = above[goal]
                    else:
                        best = above[best]
            if each not in above or above[each] is not best:
                above[each], changed = best, True
    found = above.get(jump)
    return None if found is None else positions_in(body)[found]


_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


def _postorder(leading: dict[Instruction | None, list[Instruction]]) -> list[Instruction | None]:
    """What leads to the exit, each after all that it is come to from; the exit is last."""
    found: list[Instruction | None] = []
    seen: set[Instruction | None] = {None}
    pending: list[tuple[Instruction | None, Iterator[Instruction]]] = [(None, iter(leading[None]))]
    while pending:
        each, rest = pending[-1]
        following = next((one for one in rest if one not in seen), None)
        if following is None:
            found.append(each)
            pending.pop()
        else:
            seen.add(following)
            pending.append((following, iter(leading.get(following, ()))))
    return found


def set_again(body: CodeBody, stores: Collection[Instruction]) -> bool:
    """Whether one of these instructions may be run after one of them was."""
    following = successors(body)
    return _leads_to(body, [goal for store in stores for goal in following[store]], stores)


def keep(body: CodeBody, kept: Collection[Instruction]) -> CodeBody:
    """The body with only these instructions; regions shrink to what is left of them."""
    where = positions_in(body)
    wanted = set(kept)
    regions = []
    for region in body.regions:
        span = body.instructions[where[region.start] : where[region.end] + 1]
        left = [instruction for instruction in span if instruction in wanted]
        if not left:
            continue
        if region.handler not in wanted:
            raise FlowError(f"{left[0]!r} is kept, its exception handler is not")
        regions.append(replace(region, start=left[0], end=left[-1]))
    instructions = [instruction for instruction in body.instructions if instruction in wanted]
    return replace(body, instructions=instructions, regions=regions)


def remove_dead_code(body: CodeBody) -> CodeBody:
    """A body of the same instruction objects, without those that control never comes to."""
    return keep(body, reachable(body))


def blocks(body: CodeBody) -> list[BasicBlock]:
    """Basic blocks in the body's order; a block lies within one exception region or in none."""
    following, regions = successors(body), covering(body)
    runs = list(_runs(body, regions))
    owner = {instruction: index for index, run in enumerate(runs) for instruction in run}
    return [
        BasicBlock(
            index,
            tuple(run),
            tuple(dict.fromkeys(owner[goal] for goal in following[run[-1]])),
            owner[regions[run[0]].handler] if run[0] in regions else None,
        )
        for index, run in enumerate(runs)
    ]


def _runs(body: CodeBody, regions: dict[Instruction, Region]) -> Iterator[list[Instruction]]:
    leaders = {i.target for i in body.instructions if i.target is not None}
    leaders.update(region.handler for region in body.regions)
    run: list[Instruction] = []
    for instruction in body.instructions:
        if run and (
            instruction in leaders
            or run[-1].target is not None
            or run[-1].opname in TERMINATORS
            or regions.get(run[-1]) is not regions.get(instruction)
        ):
            yield run
            run = []
        run.append(instruction)
    if run:
        yield run


_NAME_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


def liveness(body: CodeBody) -> dict[Instruction, frozenset[str]]:
    """Names (variables, cells, free variables) that may be read from each instruction on.

    A live name is not always bound: a comprehension that 3.12 inlines saves and restores the slot
    of its variable, which reads it even when it is empty.
    """
    following, regions, before = successors(body), covering(body), _predecessors(body)
    live: dict[Instruction, frozenset[str]] = dict.fromkeys(body.instructions, frozenset())
    pending = dict.fromkeys(reversed(body.instructions))
    while pending:
        instruction = next(iter(pending))
        del pending[instruction]
        needed = frozenset[str]().union(*(live[goal] for goal in following[instruction]))
        needed = (needed - _written(instruction)) | _read(instruction, body)
        if instruction in regions:  # it may raise before it writes
            needed |= live[regions[instruction].handler]
        if needed != live[instruction]:
            live[instruction] = needed
            pending.update(dict.fromkeys(before[instruction]))
    return live


def predecessors(body: CodeBody) -> dict[Instruction, set[Instruction]]:
    """From where control may come to an instruction without an exception; none: not at all."""
    before: dict[Instruction, set[Instruction]] = defaultdict(set)
    for instruction, goals in successors(body).items():
        for goal in goals:
            before[goal].add(instruction)
    return before


def _predecessors(body: CodeBody) -> dict[Instruction, set[Instruction]]:
    """The same, exceptions included."""
    before = predecessors(body)
    for instruction, region in covering(body).items():
        before[region.handler].add(instruction)
    return before


def sometimes_bound(body: CodeBody, instruction: Instruction) -> frozenset[str]:
    """Variables that may have a value before an instruction in one turn of a loop that it is in,
    and none in another."""
    before, after = _predecessors(body), reachable(body, instruction)
    found = reached(before[instruction] & after, lambda one: before[one] & after)
    written = frozenset[str]().union(*(_written(one) for one in found))
    return written - always_bound(body, instruction) if written else written


def always_bound(body: CodeBody, instruction: Instruction) -> frozenset[str]:
    """Variables that have a value before an instruction, whatever way control came to it."""
    return bound_before(body).get(instruction, frozenset())


_BINDS = frozenset({"STORE_FAST", "STORE_DEREF"})
_UNBINDS = (WRITES_SLOT - {"MAKE_CELL"}) | {"DELETE_DEREF"}


def bound_before(body: CodeBody) -> dict[Instruction, frozenset[str]]:
    """The same of each instruction that control comes to. Of a variable in a cell: as far as the
    body itself says, which a function inside may contradict."""

    def raised(one: Instruction, names: Names) -> Names:
        return names - {str(one.argval)} if one.opname in _UNBINDS else names

    def after(one: Instruction, names: Names) -> Names:
        left = raised(one, names)
        return left | {str(one.argval)} if one.opname in _BINDS else left

    arguments = body.code.co_varnames[: argument_count(body.code)]
    return before_each(body, frozenset(arguments), after, operator.and_, raised)


def before_each(
    body: CodeBody,
    first: Names,
    after: Callable[[Instruction, Names], Names],
    merged: Callable[[Names, Names], Names],
    raised: Callable[[Instruction, Names], Names] = lambda _, names: names,
) -> dict[Instruction, Names]:
    """A set of names before each instruction that control comes to, by dataflow from the first.

    after: what it is after an instruction; `raised`: where that raises. merged: what it is where
    control comes from several.
    """
    following, regions = successors(body), covering(body)
    before = dict.fromkeys(body.instructions[:1], first)
    pending = [*before]
    while pending:
        one = pending.pop()
        left = after(one, before[one])
        goals = [(goal, left) for goal in following[one]]
        if one in regions:
            goals.append((regions[one].handler, raised(one, before[one])))
        for goal, arriving in goals:
            names = merged(before.get(goal, arriving), arriving)
            if names != before.get(goal):
                before[goal] = names
                pending.append(goal)
    return before


def unbound_by_others(code: CodeType) -> frozenset[str]:
    """Variables of a function that functions inside of it take the value of."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    found = frozenset[str]().union(*map(unbound_by_others, inner))
    for one in inner:
        deleted = {str(i.argval) for i in decode(one).instructions if i.opname == "DELETE_DEREF"}
        found |= deleted.intersection(one.co_freevars)
    return found.intersection((*code.co_cellvars, *code.co_freevars))


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


_LOOKS_AT_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})
#: names that say which variables `live_at` keeps; they hold for each part of a function that has
#: them, so that what a frame keeps is the same by its own code and by that which goes on elsewhere
TELLING = _LOOKS_AT_LOCALS | {"super"}


def live_at(body: CodeBody, instruction: Instruction, bound: Sequence[str]) -> tuple[str, ...]:
    """Variables (cells excluded) that are bound and may be read from an instruction on, in the
    order in which the frame lets go of them."""
    code = body.code
    cells = {*code.co_cellvars, *code.co_freevars}
    live = set(live_locals(body, instruction))
    if not _LOOKS_AT_LOCALS.isdisjoint(code.co_names):
        live.update(name for name in bound if not name.startswith("___"))
    needs_self = code.co_argcount > 0 and (
        "super" in code.co_names or "__class__" in code.co_freevars
    )
    first = code.co_varnames[0] if needs_self else None
    names = [name for name in bound if name in live and name not in cells and name != first]
    names.sort(key=code.co_varnames.index)
    if first is not None and first not in cells and first in bound:
        names.insert(0, first)
    return tuple(names)
