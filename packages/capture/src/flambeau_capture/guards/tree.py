"""Guard tree: guards arranged by the object they examine, for native evaluation.

In: guards with their sources, and the code object of the frame they were made for. Out: a
`GuardTree` that reads every shared prefix once. Invariant: the tree holds on a frame exactly if
every guard does; on one value the cheap checks come first, its identity before all, and what is
checked of a value is checked before anything is read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture import source as sources
from flambeau_capture.bytecode.decode import argument_count
from flambeau_capture.guards.guard import Guard
from flambeau_capture.guards.kinds import EXISTS
from flambeau_capture.guards.sizes import FUNCTIONS
from flambeau_capture.guards.tensor import TENSOR_MATCH
from flambeau_capture.source import Source, Step

if TYPE_CHECKING:
    from flambeau_capture._native import GuardTree

PIN_COST = 9  # after all checks of the value


@dataclass
class _GuardNode:
    step: Step
    checks: list[tuple[int, str, Any]] = field(default_factory=list)  # cost, check, argument
    children: dict[Any, _GuardNode] = field(default_factory=dict)
    slot: int | None = None


_Known = dict[int, tuple[_GuardNode, Source]]


def build_tree(guards: Iterable[Guard], code: CodeType) -> GuardTree:
    # the native module is not needed to make and print guards
    from flambeau_capture._native import ACCESS, CHECK, SIZE_OP, GuardTree, set_functions

    set_functions(FUNCTIONS)
    root = _GuardNode(("ROOT", None))
    known: _Known = {}
    same: list[int] = []
    distinct: list[int] = []
    programs: list[tuple[int, ...]] = []
    slots: list[_GuardNode] = []
    made: dict[Any, tuple[str, Any]] = {}
    for guard in guards:
        ends = [_reach(root, source, code, known) for source in guard.examined()]
        if guard.kind is EXISTS:
            continue  # a node that cannot be reached does not hold
        if guard.kind.relation is None:
            end = ends[0] if ends else root
            end.checks.append((guard.kind.cost, *_check_of(guard, made)))
        else:
            pinned = [_pin(end, slots) for end in ends]
            if guard.kind.relation == "sizes":
                where = dict(zip(guard.examined(), pinned, strict=True))
                programs.append(guard.params[0].numbers(where, SIZE_OP))
            elif guard.kind.relation == "same":
                same.extend(pinned)
            else:
                distinct.extend((len(pinned), *pinned))
    nodes: list[tuple[int, int, Any]] = []
    checks: list[tuple[int, int, Any]] = []

    pending = [(root, -1)]
    while pending:
        node, parent = pending.pop()
        index = len(nodes)
        nodes.append((parent, ACCESS[node.step[0]], node.step[1]))
        for _, name, argument in sorted(node.checks, key=lambda c: (c[0], c[1] not in _IDENTITY)):
            checks.append((index, CHECK[name], argument))
        below = sorted(node.children.values(), key=lambda n: _ROOT_ORDER.get(n.step[0], 0))
        pending += [(child, index) for child in reversed(below)]
    layout = None
    if programs:
        from flambeau_capture.guards._tensor_layout import tensor_layout  # torch, at first use

        layout = tensor_layout()
    related = (tuple(same), tuple(distinct), tuple(programs))
    return GuardTree(tuple(nodes), tuple(checks), len(slots), *related, layout)


def _check_of(guard: Guard, made: dict[Any, tuple[str, Any]]) -> tuple[str, Any]:
    """The native check; tensors that must look alike share one pattern."""
    if guard.kind is not TENSOR_MATCH:
        return guard.kind.check(guard.params)
    found = made.get(guard.params)
    if found is None:
        found = made[guard.params] = guard.kind.check(guard.params)
    return found


def _pin(node: _GuardNode, slots: list[_GuardNode]) -> int:
    if node.slot is None:
        node.slot = len(slots)
        slots.append(node)
        node.checks.append((PIN_COST, "PIN", node.slot))
    return node.slot


def _reach(root: _GuardNode, source: Source, code: CodeType, known: _Known) -> _GuardNode:
    """The node of a source; `known`: those so far, by the identity of their source, kept there."""
    found = known.get(id(source))
    if found is not None:
        return found[0]
    if isinstance(source, sources.Derived):
        node, steps = _reach(root, source.base, code, known), source.steps()
    else:
        node, steps = root, (_ROOTS[type(source)](source, code),)
    for step in steps:
        key = (step[0], *_hashable(step[1]))
        below = node.children.get(key)
        if below is None:
            below = node.children[key] = _GuardNode(step)
        node = below
    known[id(source)] = node, source
    return node


def _hashable(argument: Any) -> tuple[Any, ...]:
    """Equal only for arguments that read the same thing: 1 and True are two keys of a path."""
    if type(argument) in _PLAIN:  # others say themselves what equals them
        return (type(argument), argument)
    return (type(argument), id(argument))


_PLAIN = frozenset({str, int, float, bytes, bool, type(None)})

# locals change most from call to call, the module's globals least
_ROOT_ORDER = {"LOCAL": 0, "FREE": 1, "FREE_CELL": 1, "CONSTANT": 2, "GLOBAL": 3, "BUILTIN": 4}


_IDENTITY = ("IS", "WEAK_IS")


def _local(node: sources.Local, code: CodeType) -> Step:
    names = code.co_varnames[: argument_count(code)]
    if node.variable not in names:
        raise ValueError(f"{node.variable!r} is no argument of {code.co_qualname}")
    return "LOCAL", names.index(node.variable)


def _free(node: sources.ClosureSource | sources.FreeCell, code: CodeType) -> Step:
    if node.variable not in code.co_freevars:
        raise ValueError(f"{node.variable!r} is no free variable of {code.co_qualname}")
    access = "FREE" if isinstance(node, sources.ClosureSource) else "FREE_CELL"
    return access, code.co_freevars.index(node.variable)


_ROOTS: dict[type[Source], Callable[[Any, CodeType], Step]] = {
    sources.Local: _local,
    sources.ClosureSource: _free,
    sources.FreeCell: _free,
    sources.Global: lambda node, code: ("GLOBAL", node.variable),
    sources.Builtin: lambda node, code: ("BUILTIN", node.variable),
    sources.ConstantSource: lambda node, code: ("CONSTANT", node.object),
}
