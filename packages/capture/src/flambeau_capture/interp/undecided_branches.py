"""Branches by open integers that need no decision: nothing that they leave is read.

In: a comparison that is left open, and the two arms of its jump. Out: both arms, interpreted one
after the other from the same state; variables, of which the first to be read decides the
comparison. Invariant: neither arm leaves anything but those variables and nodes of the graph, which
go where nobody uses them; a branch of another kind is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import fx

from flambeau_capture.breaks import Break, CaptureAgain
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.position_loops import last_node, nodes_after, storage_of
from flambeau_capture.values.base import Tracer, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.numbers.open_choices import OpenTruth, UndecidedValue
from flambeau_capture.values.tensors.tensor import TensorValue

Arms = tuple[tuple[int, int], tuple[int, int]]
"""Where each begins and ends."""

#: instructions that a straight arm has none of
_LEAVES = (
    "RETURN", "YIELD", "RAISE", "RERAISE", "DELETE", "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL",
    "STORE_NAME", "STORE_SUBSCR", "STORE_SLICE", "IMPORT", "BEFORE", "SEND", "GET_AWAITABLE",
)  # fmt: skip
_LONGEST = 80


class _Left(NamedTuple):
    """What an arm has left: variables, and nodes that are no work where nobody uses them."""

    variables: dict[str, Value | None]
    nodes: list[fx.Node]


def is_straight(frame: Frame, arms: Arms) -> bool:
    """Whether arms are instructions one after the other that store nothing but variables."""
    instructions = frame.prepared.body.instructions
    inside = [one for begin, end in arms for one in instructions[begin:end]]
    return len(inside) <= _LONGEST and not any(
        each.target is not None or each.opname.startswith(_LEAVES) for each in inside
    )


def leave_undecided(
    frame: Frame, condition: OpenTruth, arms: Arms, taken: int, names: set[str]
) -> bool:
    """Interpret both arms, and let variables decide where they are read; whether that can be."""
    tx, place = frame.tx, frame.tx.stack_trace()
    if tx.is_decided(place):
        return False
    start, current, stack = frame.position, frame.current, list(frame.stack)
    before = {name: frame.variables.get(name) for name in names}
    untouched, last = _lasting(tx), last_node(tx)
    left: list[_Left] = []
    try:
        for begin, end in arms:
            frame.position, frame.stack = begin, list(stack)
            set_variables(frame, before)
            left += _interpreted(frame, end, stack, names)
    except (Break, UserError):
        pass
    if len(left) < len(arms) and (_lasting(tx), last_node(tx)) != (untouched, last):
        raise CaptureAgain(partial(tx.decide_branch, place))
    frame.position, frame.current, frame.stack, frame.keyword_names = start, current, stack, ()
    set_variables(frame, before)
    if len(left) < len(arms):
        return False
    frame.position = arms[1][1]
    variables, nodes = left[taken]
    for name in names:
        frame.variables[name] = UndecidedValue(condition, variables[name], nodes)
    return True


def set_variables(frame: Frame, variables: dict[str, Value | None]) -> None:
    """Bind variables of a frame; None: unbind."""
    for name, value in variables.items():
        if value is None:
            frame.variables.pop(name, None)
        else:
            frame.variables[name] = value


def _interpreted(frame: Frame, end: int, stack: list[Value], names: set[str]) -> Iterator[_Left]:
    """An arm to its end; nothing where it leaves more than variables."""
    graph, untouched = frame.tx.graph, _lasting(frame.tx)
    last, calls = last_node(frame.tx), graph.calls
    with graph.effects.following() as written:
        while frame.position < end:
            frame.step()
    nodes = [node for node in nodes_after(last) if node.op in ("call_function", "call_method")]
    variables = {name: frame.variables.get(name) for name in names}
    plain = all(isinstance(each, TensorValue | Constant | None) for each in variables.values())
    same = plain and frame.stack == stack and _lasting(frame.tx) == untouched
    if not same or written & _memory_of_others(graph, nodes):
        return
    graph.calls = calls
    nodes = [node for node in nodes if not node.meta.get("projection")]
    for node in nodes:
        node.meta["projection"] = True
    yield _Left(variables, nodes)


def _lasting(tx: Tracer) -> tuple[Any, ...]:
    """What an effect changes, other than a tensor's data."""
    effects = tx.graph.effects
    by_data, known = len(tx.shapes.places_by_data()), len(tx.assumed)
    return tx.heap.version, (*effects.other,), effects.switches, by_data, known


def _memory_of_others(graph: Any, nodes: Sequence[fx.Node]) -> set[Any]:
    """The addresses of memory that an arm has not made."""
    own = set(nodes)
    return {storage_of(node) for node in graph.graph.nodes if node not in own}
