"""Loops over the positions of what is true, unrolled for all that there may be.

In: `for i in hit.nonzero()`, of a mask of one dimension and a known, short length. Out: an
iterator over every position. Invariant: an iteration of a position that is not there does nothing:
it leaves the interpreted state as it was, and writes by indices alone, of which there are then
none. The graph checks that. A loop whose body is of another kind is captured again, as if all
positions were there; so is one that is left early, and one whose results require grad, as weights
of what did not run have no gradient in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import fx

from flambeau_capture.breaks import CaptureAgain
from flambeau_capture.bytecode.flow import live_locals
from flambeau_capture.graph.functions import NotInGeneral
from flambeau_capture.graph.operator_effects import DRAWS
from flambeau_capture.interp.frame import Frame
from flambeau_capture.values.base import IteratorValue, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.tensors.graph_calls import check_all, tensor_call
from flambeau_capture.values.tensors.numbers.data_numbers import (
    number_tensor,
    positions_there_may_be,
)
from flambeau_capture.values.tensors.refused_calls import operator_name
from flambeau_capture.values.tensors.symbolic_numbers import symbol_value
from flambeau_capture.values.tensors.tensor import TensorValue

#: writes by indices, and where these are among the arguments: none of them, and nothing is written
_BY_INDICES = {
    "index_add_": 2, "index_copy_": 2, "index_fill_": 2, "scatter_": 2, "scatter_add_": 2,
    "scatter_reduce_": 2, "index_put_": 1, "setitem": 1,
}  # fmt: skip


def loop(frame: Frame, value: Value) -> IteratorValue | None:
    """The iterator of a `for` over positions; None: it is no such loop, or was none."""
    tx = frame.tx
    following = frame.prepared.body.instructions[frame.position]
    if not isinstance(value, TensorValue) or following.opname != "FOR_ITER":
        return None
    if tx.graph is not tx.graph.outermost or not tx.loops_by_position():
        return None
    every = positions_there_may_be(tx, value)
    if every is None:
        return None
    there = tensor_call(tx, "call_function", operator.eq, [value, every[1]])
    hit = tensor_call(tx, "call_method", "any", [there, Constant(0)])
    made = PositionLoop(every[0].iterate(tx), hit, live_locals(frame.prepared.body, following))
    tx.open_loops.append(made)
    tx.checks_loops = True
    return made


class PositionLoop(IteratorValue):
    """The iterator of one. `hit`: by position, whether it is there."""

    def __init__(self, items: IteratorValue, hit: TensorValue, live: frozenset[str]) -> None:
        self._items = items
        self._hit = hit
        self._live = live
        self._position = -1
        self._before: tuple[Any, ...] = ()
        self._touched = 0
        self._last: fx.Node | None = None

    @property
    def cls(self) -> type:
        return self._items.cls

    def advance(self, tx: Tracer) -> Value | None:
        if self._position >= 0:
            self._ends(tx)
        item = self._items.advance(tx)
        if item is None:
            tx.open_loops.remove(self)
            return None
        self._position += 1
        self._before = self._state(tx)
        self._touched = len(tx.heap.touched)
        self._last = last_node(tx)
        return item

    def _state(self, tx: Tracer) -> tuple[Any, ...]:
        """What an iteration that does nothing leaves."""
        frame = tx.frames[-1]
        found = [frame.variables.get(name) for name in sorted(self._live)]
        return (*map(_Same, (*found, *frame.stack, tx.graph)), tx.heap.writes())

    def _ends(self, tx: Tracer) -> None:
        if self._state(tx) != self._before or DRAWS in tx.graph.effects.other:
            again(tx)
        if any(map(self._lasts(tx), tx.heap.touched[self._touched :])):
            again(tx)
        counts = [_count(tx, node) for node in self._writes(tx)]
        place = Constant(self._position)
        there = tensor_call(tx, "call_function", operator.getitem, [self._hit, place])
        for count in counts:
            none = tensor_call(tx, "call_function", operator.eq, [count, Constant(0)])
            either = tensor_call(tx, "call_function", torch.logical_or, [there, none])
            said = ("an iteration of a position that is not there does something",)
            check_all(tx, either, NotInGeneral, said)

    def _lasts(self, tx: Tracer) -> Callable[[Value | None], bool]:
        """Whether a value that changed is one that there was before, and will be."""
        frame, *outer = reversed(tx.frames)
        own = [v for name, v in frame.variables.items() if name in self._live]
        others = [v for each in outer for v in (*each.variables.values(), *each.stack)]
        own += frame.contents()
        cells = [cell for each in tx.frames for cell in each.cells.values()]
        kept = reached([*own, *frame.stack[:-1], *others, *cells, *tx.heap.effects()])
        mine = reached([*own, *frame.stack[:-1]]).values()
        iterates = any(isinstance(each, IteratorValue) for each in mine)
        return lambda value: iterates if value is None else id(value) in kept

    def _writes(self, tx: Tracer) -> Iterator[fx.Node]:
        """The nodes of this iteration that write to what there was before it."""
        assert self._last is not None
        nodes = [node for node in nodes_after(self._last) if node.op != "get_attr"]
        made: set[Any] = set()
        for node in nodes:
            made |= {storage_of(node)} - set(map(storage_of, node.all_input_nodes))
        for node in nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.requires_grad:
                again(tx)
            given = [n for n in node.all_input_nodes if tx.graph.effects.writes_to(_tensors(n))]
            given = [n for n in given if storage_of(n) not in made]
            if not given or node.target is operator.getitem:
                continue
            if operator_name(node.target) not in _BY_INDICES or given != [node.args[0]]:
                again(tx)
            yield node


def again(tx: Tracer) -> None:
    """Capture again, with loops over positions as if all were there."""
    raise CaptureAgain(tx.loop_over_all)


class _Same:
    """Equal to the same object alone."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of

    __hash__ = None  # type: ignore[assignment]


def reached(values: Iterable[Any]) -> dict[int, Any]:
    """These, and what they hold, by identity."""
    found: dict[int, Any] = {}
    left = list(values)
    while left:
        value = left.pop()
        if id(value) not in found and isinstance(value, Value):
            found[id(value)] = value
            left += value.holds()
    return found


def last_node(tx: Tracer) -> fx.Node:
    node: fx.Node = tx.graph.graph._root.prev
    return node


def nodes_after(node: fx.Node) -> Iterator[fx.Node]:
    while (node := node.next).op != "root":
        yield node


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    return [value] if isinstance(value, torch.Tensor) else []


def storage_of(node: fx.Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.untyped_storage()._cdata


def _count(tx: Tracer, node: fx.Node) -> Value:
    """How many indices a write has."""
    index = node.args[_BY_INDICES[operator_name(node.target)]]
    parts = index if isinstance(index, tuple | list) else (index,)
    tensors = [part.meta["val"] for part in parts if isinstance(part, fx.Node)]
    tensors = [x for x in tensors if isinstance(x, torch.Tensor) and x.dtype != torch.bool]
    if not tensors or not isinstance(count := tensors[0].numel(), torch.SymInt):
        again(tx)
    return number_tensor(tx, symbol_value(tx, count))
