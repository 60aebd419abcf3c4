"""Branches by a tensor's data, as a choice in the graph between two bodies.

In: a jump by a tensor of one element whose data capture does not know. Out: the frame where both
ways meet again, or its end, with tensors and numbers that the graph chooses. Both ways are
interpreted from the same state, each as a body of its own; the way that stays in a loop goes
through the rest of it, so that `if done: break` is a choice, too.
Invariant: neither way leaves anything but variables and what it returns: tensors of one metadata,
with derivatives by the same leaves; what passes through a way is a copy in the graph, and where
that would show, or a way does anything else, the branch is captured again as a graph break.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import REASONS, Break, BreakReport, CaptureAgain, SkipFrame
from flambeau_capture.bytecode.flow import between, live_locals, meeting
from flambeau_capture.graph.builder import CopiedTensor, GraphBuilder
from flambeau_capture.graph.functions import choice_call, select
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.position_loops import reached, storage_of
from flambeau_capture.interp.tracer import Reached
from flambeau_capture.interp.undecided_branches import set_variables
from flambeau_capture.source import Local
from flambeau_capture.values.base import IteratorValue, Tracer, UserError, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.higher_order.bodies import inside
from flambeau_capture.values.tensors.graph_calls import record_result, tensor_call, version_of
from flambeau_capture.values.tensors.numbers.data_numbers import condition_tensor, is_by_data
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

_DEEPEST = 24
_WHAT = "a way of a branch by data"


class _NoChoice(Exception):
    """The branch is to be a graph break."""


class ChosenNumber(Value):
    """A number that two ways leave, in a way around them that ends where they meet."""

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor

    def describe(self) -> str:
        return "a number that a branch by data chooses"


@dataclass
class _Way:
    """A frame at the end of one, in a graph of its own; `returned`: None where it goes on."""

    body: GraphBuilder
    variables: dict[str, Value | None]
    stack: list[Value]
    returned: Value | None


@dataclass
class _Choice:
    """What is chosen: for each tensor its value in both ways. numbers: may be chosen, too."""

    numbers: bool
    pairs: list[tuple[Value, Value]] = field(default_factory=list)
    merged: dict[tuple[int, int], Any] = field(default_factory=dict)

    def note(self, one: Value, other: Value, found: Any) -> Any:
        """Note what is left of two values. One that was paired with another before would show in
        what is identical to what."""
        if any((id(one) == first) != (id(other) == second) for first, second in self.merged):
            raise _NoChoice
        self.merged[id(one), id(other)] = found
        return found

    def passing(self, before: dict[int, Any]) -> list[Value]:
        """Those of the values that there were before the ways."""
        ids = {each for pair in self.merged for each in pair}
        return [before[each] for each in ids if each in before]


@dataclass(frozen=True)
class _ChosenPlace:
    """The place of a choice; number: it is a number of Python's."""

    place: int
    number: bool = False


def choose(frame: Frame, condition: Value, holds: bool) -> bool:
    """Go to where the two ways of a jump meet, or to the end of the frame; whether it is such a
    branch. The condition has been popped; the jump is taken where it is not `holds`."""
    tx = frame.tx
    predicate = _predicate(tx, condition)
    if predicate is None or not _may_choose(tx, frame):
        return False
    place = f"{tx.stack_trace()} {frame.current.offset}"
    if tx.is_decided(place):
        return False
    meet = meeting(frame.prepared.body, frame.current)
    try:
        _chosen(frame, predicate, holds, meet, partial(tx.decide_branch, place))
    except (_NoChoice, Break, UserError, SkipFrame, Reached):
        raise CaptureAgain(partial(tx.decide_branch, place)) from None
    return True


def _may_choose(tx: Tracer, frame: Frame) -> bool:
    """Whether bodies can be captured here, and what they leave can be known."""
    ways = 0
    builder: GraphBuilder | None = tx.graph
    while builder is not None and builder.outer is not None:
        if not builder.is_way:
            return False
        ways, builder = ways + 1, builder.outer
    plain = not tx.has_generators and not tx.run_later and tx.frames[-1] is frame
    return tx.options.branches_by_data and plain and ways < _DEEPEST


def _predicate(tx: Tracer, condition: Value) -> Value | None:
    """What decides, if only the graph knows it: a tensor, or a number that data gives."""
    if is_by_data(condition) and isinstance(condition, SymbolValue):
        return condition if condition.known_truth() is None else None
    if not isinstance(condition, TensorValue) or condition.truth_known is not None:
        return None
    one = all(type(size) is int and size == 1 for size in condition.fake.shape)
    return condition if one and tx.tensor_rules.known_data(tx, condition) is None else None


def _chosen(frame: Frame, condition: Value, holds: bool, meet: int | None, decide: Any) -> None:
    tx = frame.tx
    predicate = _as_truth(tx, condition)
    step, lines = tx.step(), tx.user_lines()
    starts = [frame.position, frame.prepared.index[_target(frame)]]
    first_jumps = _leaves_loop(frame, starts, meet)
    order = [1, 0] if first_jumps else [0, 1]
    for name in frame.code.co_varnames:
        frame.variables.get(name)  # an argument that nothing has read would be lost
    before, stack, current = dict(frame.variables), list(frame.stack), frame.current
    own = _kept(tx)
    ways: dict[int, _Way] = {}
    for place in order:
        frame.position, frame.stack, frame.current = starts[place], list(stack), current
        _restore(frame, before)
        ways[place] = _interpreted(frame, meet, own, may_advance=len(ways) == 1)
    yes, no = (ways[0], ways[1]) if holds else (ways[1], ways[0])
    choice = _Choice(tx.graph is tx.graph.outermost or frame.meetings[-1:] == [meet])
    names = {**yes.variables, **no.variables}
    variables = {
        name: _merged(choice, yes.variables.get(name), no.variables.get(name)) for name in names
    }
    if (yes.returned is None) != (no.returned is None) or len(yes.stack) != len(no.stack):
        raise _NoChoice
    rest = [_merged(choice, *pair) for pair in zip(yes.stack, no.stack)]
    returned = None
    if yes.returned is not None and no.returned is not None:
        returned = _merged(choice, yes.returned, no.returned)
    left = [*variables.values(), *rest, returned]
    _check_passing(tx, choice.passing(own), [each for each in left if isinstance(each, Value)])
    report = BreakReport(REASONS["FB0001"], "a branch whose copies would show", lines)
    made = _recorded(tx, predicate, (yes, no), choice, (step, report, decide))
    _restore(frame, before)
    set_variables(frame, {name: _filled(tx, each, made) for name, each in variables.items()})
    frame.stack, frame.keyword_names = [_filled(tx, each, made) for each in rest], ()
    if returned is not None:
        frame.returned, frame.finished = _filled(tx, returned, made), True
    else:
        assert meet is not None
        frame.position = meet


def _as_truth(tx: Tracer, condition: Value) -> TensorValue:
    found = condition if isinstance(condition, TensorValue) else condition_tensor(tx, condition)
    if found is None:
        raise _NoChoice
    if found.fake.dtype != torch.bool:
        found = tensor_call(tx, "call_function", torch.ne, [found, Constant(0)])
    if found.fake.dim():
        found = tensor_call(tx, "call_method", "reshape", [found, TupleValue([])])
    return found


def _target(frame: Frame) -> Any:
    assert frame.current.target is not None
    return frame.current.target


def _leaves_loop(frame: Frame, starts: Sequence[int], meet: int | None) -> bool:
    """Whether of two ways the one that jumps is to be interpreted first: the other one goes on in a
    loop, whose iterator it advances."""
    body = frame.prepared.body
    iterates = [
        any(each.opname == "FOR_ITER" for each in between(body, start, meet)) for start in starts
    ]
    return iterates[0] and not iterates[1]


def _restore(frame: Frame, variables: dict[str, Value]) -> None:
    gone = {name: None for name in dict(frame.variables) if name not in variables}
    set_variables(frame, {**gone, **variables})
    frame.finished = False


def _kept(tx: Tracer) -> dict[int, Any]:
    """All values that there are before the ways, but iterators."""
    values = [v for each in tx.frames for v in (*each.variables.values(), *each.stack)]
    cells = [cell for each in tx.frames for cell in each.cells.values()]
    contents = [one for each in tx.frames for one in each.contents()]
    return reached([*values, *cells, *contents, *tx.heap.effects()])


def _interpreted(frame: Frame, meet: int | None, own: dict[int, Any], may_advance: bool) -> _Way:
    """One way, to where both meet or to the end of the frame."""
    tx = frame.tx
    touched, writes, entered = len(tx.heap.touched), tx.heap.writes(), list(tx.entered)
    other, error, assumed = {*tx.graph.effects.other}, tx.error, len(tx.assumed)
    frame.meetings.append(meet)
    try:
        with inside(tx, _WHAT) as body, tx.graph.effects.following() as written:
            body.is_way = True
            while frame.position != meet and not frame.finished:
                frame.step()
    finally:
        frame.meetings.pop()
    changed = tx.heap.touched[touched:]
    lasting = [each for each in changed if each is not None and id(each) in own]
    iterated = [each for each in changed if each is None]
    same = (tx.heap.writes(), list(tx.entered), tx.error) == (writes, entered, error)
    same = same and other.issuperset(tx.graph.effects.other) and len(tx.assumed) == assumed
    mine = {storage_of(node) for node in body.graph.nodes} - {storage_of(n) for n in _outer(body)}
    iterators = any(isinstance(each, IteratorValue) for each in own.values())
    if lasting or not same or written - mine or (iterated and iterators and not may_advance):
        raise _NoChoice
    returned = frame.returned if frame.finished else None
    frame.returned = Constant(None)
    if returned is not None:
        frame.finished = False
        return _Way(body, {}, [], returned)
    assert meet is not None
    code = frame.prepared.body
    live = live_locals(code, code.instructions[meet])
    variables = {name: dict.get(frame.variables, name) for name in live}
    bound = [value for value in variables.values() if value is not None]
    left = [*bound, *frame.stack, *(v for f in tx.frames[:-1] for v in f.stack)]
    if iterated and any(isinstance(v, IteratorValue) for v in reached(left).values()):
        raise _NoChoice
    return _Way(body, variables, list(frame.stack), None)


def _outer(body: GraphBuilder) -> Iterator[fx.Node]:
    """The nodes of the graphs around a body."""
    builder = body.outer
    while builder is not None:
        yield from builder.graph.nodes
        builder = builder.outer


def _merged(choice: _Choice, one: Value | None, other: Value | None) -> Any:
    """What is left of two values: one that both are, a place of the choice, or a tuple of these."""
    if one is other:
        return one  # nothing, too, where neither way leaves a variable bound
    if one is None or other is None:
        raise _NoChoice
    if (id(one), id(other)) in choice.merged and isinstance(one, TensorValue):
        return choice.merged[id(one), id(other)]
    if isinstance(one, TupleValue) and isinstance(other, TupleValue):
        parts = one.parts(), other.parts()
        if type(one) is type(other) is TupleValue and len(parts[0]) == len(parts[1]):
            return choice.note(one, other, [_merged(choice, *pair) for pair in zip(*parts)])
    if isinstance(one, TensorValue) and isinstance(other, TensorValue):
        choice.pairs.append((one, other))
        return choice.note(one, other, _ChosenPlace(len(choice.pairs) - 1))
    if isinstance(one, SymbolValue) and isinstance(other, SymbolValue):
        if one.number is other.number:
            return one
    kinds = [_kind(each) for each in (one, other)]
    if kinds[0] is None or kinds[0] is not kinds[1]:
        raise _NoChoice
    if isinstance(one, Constant) and isinstance(other, Constant):
        if repr(one.as_python()) == repr(other.as_python()):
            return one
    if kinds[0] not in (int, float) or not choice.numbers:
        raise _NoChoice
    choice.pairs.append((one, other))
    return _ChosenPlace(len(choice.pairs) - 1, number=True)


def _check_passing(tx: Tracer, passing: Sequence[Value], left: Sequence[Value]) -> None:
    """Refuse values that pass through a way where it shows that what is left is a copy: something
    else has them, or they have what a copy lacks."""
    held = [
        *left,
        *tx.heap.effects(),
        *(cell for each in tx.frames for cell in each.cells.values()),
    ]
    for each in tx.frames[:-1]:
        body = each.prepared.body
        live = live_locals(body, body.instructions[each.position])
        held += [*each.stack, *(v for name in live if (v := dict.get(each.variables, name)))]
    found = reached(held)
    for value in passing:
        if id(value) in found or not isinstance(value.source, Local | None):
            raise _NoChoice
        if isinstance(value, TensorValue) and value.fake.requires_grad:
            if value.fake.is_leaf or value.fake.retains_grad:
                raise _NoChoice


def _kind(value: Value) -> type | None:
    """The class of a plain constant, or of a number that is chosen."""
    if isinstance(value, ChosenNumber):
        return int if value.tensor.fake.dtype == torch.int64 else float
    if isinstance(value, Constant) and isinstance(
        value.as_python(), int | float | str | type(None)
    ):
        return type(value.as_python())
    return None


def _filled(tx: Tracer, found: Any, made: Sequence[TensorValue]) -> Any:
    if isinstance(found, list):
        return TupleValue([_filled(tx, each, made) for each in found])
    if not isinstance(found, _ChosenPlace):
        return found
    tensor = made[found.place]
    if not found.number:
        return tensor
    if tx.graph is tx.graph.outermost:
        return tensor.call_method(tx, "item", [], {})
    return ChosenNumber(tensor)


@contextmanager
def _within(tx: Tracer, body: GraphBuilder) -> Iterator[None]:
    before, tx.graph = tx.graph, body
    try:
        yield
    finally:
        tx.graph = before


def _recorded(
    tx: Tracer, predicate: TensorValue, ways: Sequence[_Way], choice: _Choice, where: Any
) -> list[TensorValue]:
    """The choice in the graph, and the tensors that it gives."""
    if not choice.pairs:
        return []
    sides, copies = [], []
    views: set[int] = set()
    for side, way in enumerate(ways):
        with _within(tx, way.body):
            values = [pair[side] for pair in choice.pairs]
            views |= {at for at, each in enumerate(values) if _is_view(tx, each)}
            given, shared = _outputs(tx, way.body, values)
        copies.append(shared)
        sides.append(given)
    for one, other in zip(*sides):
        _agree(one.meta["val"], other.meta["val"])
        if _leaves_of(one, ways[0].body) != _leaves_of(other, ways[1].body):
            raise _NoChoice
    modules, lifted = [], []
    for way, nodes in zip(ways, sides):
        way.body.set_output(tuple(nodes))
        module, taken = way.body.finish_body()
        modules.append(tx.graph.add_module(module, "way"))
        lifted.append(taken)
    tensors: list[fx.Node] = list(dict.fromkeys([*lifted[0], *lifted[1]]))
    order = {node: place for place, node in enumerate(tensors)}
    places = tuple(tuple(order[node] for node in own) for own in lifted)
    results = [tuple(node.meta["val"] for node in nodes) for nodes in sides]
    with tx.graph.fake_mode:
        fakes = select(predicate.fake, *results)
    for made, one in zip(fakes, results[0]):
        _agree(made, one)
    head = (predicate.node, *modules, places)
    found = record_result(tx, choice_call, (*head, *tensors), fakes)
    chosen = [each for each in unpack(tx, found) if isinstance(each, TensorValue)]
    _watch(tx, chosen, results, copies, where)
    step, report, decide = where
    for at in views:
        copy, version = chosen[at].fake, version_of(chosen[at].fake)
        tx.graph.outermost.copied.append(
            CopiedTensor(copy, copy, version, version, step, report, decide)
        )
    return chosen


def _is_view(tx: Tracer, value: Value) -> bool:
    """Whether eager has a view there: what is chosen is none, which shows once it leaves."""
    if not isinstance(value, TensorValue):
        return False
    known = [one.copy for one in tx.graph.outermost.copied if not one.alone]
    return value.fake._is_view() or any(compat.same_memory(each, value.fake) for each in known)


def _outputs(
    tx: Tracer, body: GraphBuilder, values: Sequence[Value]
) -> tuple[list[fx.Node], list[list[torch.Tensor]]]:
    """The nodes of a way's results, each in memory of its own, and what else lies in eager's."""
    outside = {storage_of(node): node.meta["val"] for node in _outer(body)}
    outside.pop(None, None)
    nodes: list[fx.Node] = []
    shared: list[list[torch.Tensor]] = []
    for value in values:
        if not isinstance(value, TensorValue):
            value = _number(tx, value)
        if value.python_class is not torch.Tensor or value.attributes:
            raise _NoChoice
        key = storage_of(body.localize(value.node))
        if key is None:
            raise _NoChoice
        found = outside.get(key)
        shared.append([] if found is None else [found])
        if found is not None:
            value = tensor_call(tx, "call_method", "clone", [value])
        node = body.localize(value.node)
        outside[storage_of(node)] = node.meta["val"]
        nodes.append(node)
    return nodes, shared


def _number(tx: Tracer, value: Value) -> TensorValue:
    if isinstance(value, ChosenNumber):
        return value.tensor
    number = value.as_python()
    dtype = torch.int64 if type(number) is int else torch.float64
    made = tensor_call(tx, "call_function", torch.scalar_tensor, [Constant(number)])
    return tensor_call(tx, "call_method", "to", [made, Constant(dtype)])


def _agree(one: torch.Tensor, other: torch.Tensor) -> None:
    """Refuse tensors that differ in more than their data."""
    same = (one.dtype, one.device, one.requires_grad, one.dim(), one.layout) == (
        other.dtype, other.device, other.requires_grad, other.dim(), other.layout,
    )  # fmt: skip
    if not same or one.is_conj() or other.is_conj() or one.is_neg() or other.is_neg():
        raise _NoChoice
    for mine, theirs in zip((*one.shape, *one.stride()), (*other.shape, *other.stride())):
        equal = mine == theirs
        if compat.known_condition(equal) is not True if not isinstance(equal, bool) else not equal:
            raise _NoChoice


def _leaves_of(node: fx.Node, body: GraphBuilder) -> set[fx.Node]:
    """The nodes without a history by which a tensor has derivatives, in the graphs around, too."""
    outer_of: dict[fx.Node, fx.Node] = {}
    builder: GraphBuilder | None = body
    while builder is not None:
        outer_of |= {inner: outer for outer, inner in builder.lifted_nodes().items()}
        builder = builder.outer
    found: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        if each in seen or not _requires_grad(each):
            continue
        seen.add(each)
        before = [outer_of[each]] if each in outer_of else each.all_input_nodes
        if not any(map(_requires_grad, before)):
            found.add(each)
        pending += before
    return found


def _requires_grad(node: fx.Node) -> bool:
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in parts)


def _watch(
    tx: Tracer, chosen: Sequence[TensorValue], results: Any, copies: Any, where: Any
) -> None:
    """See to it that no copy shows: neither is written to, nor leaves the graph."""
    step, report, decide = where
    kept = tx.graph.outermost.copied
    before = list(kept)
    around = {storage_of(node) for node in (*tx.graph.graph.nodes, *_outer(tx.graph))}
    for way, shared in zip(results, copies):
        own = {each.untyped_storage()._cdata: place for place, each in enumerate(way)}
        for place, fake in enumerate(way):
            wholes = [*shared[place]]
            wholes += [one.whole for one in before if compat.same_memory(one.copy, fake)]
            for whole in wholes:
                key = whole.untyped_storage()._cdata
                if key not in around:
                    if own.get(key, place) == place:
                        continue
                    whole = chosen[own[key]].fake
                copy = chosen[place].fake
                versions = version_of(copy), version_of(whole)
                kept.append(CopiedTensor(copy, whole, *versions, step, report, decide, True))
