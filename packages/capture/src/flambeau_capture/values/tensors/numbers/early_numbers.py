"""Numbers of tensors of one element, read before the graph runs.

In: a tensor of one element that follows from another on the CPU that the frame was entered with, by
a few operators, in place or not. Out: its number as Python has it, computed of that tensor
at entry: an open number of the program, which guards compare and the graph is given. Invariant: the
program's tensor is only read, and every write to it that the graph has recorded is replayed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import CaptureAgain
from flambeau_capture.source import NumberOf, Source
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.tensors.data.constant_data import (
    PURE,
    READERS,
    of_torch,
    tensors_of,
    written_elsewhere,
)
from flambeau_capture.values.tensors.graph_calls import version_of
from flambeau_capture.values.tensors.refused_calls import operator_name
from flambeau_capture.values.tensors.tensor import TensorValue

STEPS = 32
"""Operations that are run again, at each call, for one number."""


@dataclass(frozen=True)
class _Slot:
    """A tensor of a replay: the one that is given, or the result of a step."""

    place: int

    def __repr__(self) -> str:
        return f"x{self.place}"


Step = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Replay:
    """A function of a tensor: the number that it comes to by operations, run on a copy."""

    text: str
    targets: tuple[Any, ...]
    steps: tuple[Step, ...] = field(compare=False)
    result: int  # 0: the copy, else a step's

    @property
    def __name__(self) -> str:
        return self.text

    def __call__(self, tensor: torch.Tensor) -> Any:
        return self.run(tensor)[self.result].item()

    def run(self, tensor: torch.Tensor) -> list[Any]:
        """The copy, and the result of each step."""
        if not self.steps:
            return [tensor]
        values: list[Any] = [tensor.detach().clone()]
        for call, args, kwargs in self.steps:
            given = [_filled(each, values) for each in args]
            values.append(call(*given, **{k: _filled(each, values) for k, each in kwargs.items()}))
        return values


def _filled(part: Any, values: list[Any]) -> Any:
    if type(part) is _Slot:
        return values[part.place]
    if not isinstance(part, list | tuple):
        return part
    filled = [_filled(each, values) for each in part]
    return tuple(filled) if isinstance(part, tuple) else filled  # of indices, these are two kinds


def early_number(tx: Tracer, tensor: TensorValue) -> Value | None:
    """The number of a tensor of one element, as Python reads it before the graph; None: it does not
    follow from one such tensor alone."""
    found = _replay(tx, tensor.node) if tensor.fake.numel() == 1 else None
    if found is None:
        return None
    (source, real), replay = found
    value = replay(real)
    if source is None:
        return tx.wrap_new(value)
    place = NumberOf(source, replay)
    if type(value) is not bool and not tx.varies(place, value):
        return None
    tx.shapes.is_read_of(place, tx.graph.outermost.fake(real))
    made: Value = tx.wrap(value, place)
    return made


def number_for_python(tx: Tracer, tensor: TensorValue) -> Value | None:
    """The same, where Python cannot go on without it: capture starts again to read it early."""
    if tx.reads_early():
        return early_number(tx, tensor)
    if tensor.fake.numel() == 1 and _replay(tx, tensor.node) is not None:
        raise CaptureAgain(tx.read_early)
    return None


_Entry = tuple[Source | None, torch.Tensor]


def _replay(tx: Tracer, root: fx.Node) -> tuple[_Entry, Replay] | None:
    known = tx.options.small_values and tx.graph is tx.graph.outermost
    kept = _operations(root) if known else None
    if kept is None:
        return None
    given = [node for node in kept if node.op in ("placeholder", "get_attr")]
    entry: _Entry | None = (None, _NOTHING)  # it follows from constants
    if given:
        entry = _entry(tx, given[0]) if len(given) == 1 else None
    if entry is None:
        return None
    slots: dict[fx.Node, Any] = dict.fromkeys(given, _Slot(0))
    steps, text = [], []
    for node in sorted(kept.keys() - slots.keys()):
        args, kwargs = (_narrowed(part, kept[node]) for part in (node.args, node.kwargs))
        args, kwargs = (fx.node.map_arg(part, slots.__getitem__) for part in (args, kwargs))
        steps.append((_callable(node), args, dict(kwargs)))
        slots[node] = _Slot(len(steps))
        text.append(f"{operator_name(node.target)}{args}{dict(kwargs) or ''}")
    name = f"number_of[{'; '.join(text)}: {slots[root]}]" if text else "number_of"
    targets = tuple(step[0] for step in steps)
    replay = Replay(name, targets, tuple(steps), slots[root].place)
    return (entry, replay) if _is_all(kept, slots, entry[1], replay) else None


_NOTHING = torch.empty(0)


def _is_all(
    kept: dict[fx.Node, set[int] | None],
    slots: dict[fx.Node, _Slot],
    real: torch.Tensor,
    replay: Replay,
) -> bool:
    """Whether a replay has all the writes that were counted, and comes to a number."""
    try:
        values = replay.run(real)
        replay(real)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return False
    lists = [node for node, places in kept.items() if places is not None]
    for node, slot in slots.items():
        value = values[slot.place]
        if not isinstance(value, torch.Tensor):
            continue
        if value.is_inference():
            return False  # nobody counts what is written to it
        # fake tensors do not count what an operator on lists writes
        uncounted = sum(
            compat.same_memory(each.meta["val"], node.meta["val"])
            for writer in lists
            for each in _nodes(_narrowed(writer.args[0], kept[writer]))
        )
        writes = value._version - uncounted if replay.steps else 0
        if version_of(node.meta["val"]) != writes:
            return False
    return True


def _entry(tx: Tracer, node: fx.Node) -> tuple[Source, torch.Tensor] | None:
    """Where the program has the tensor of an input, and the tensor, if it has one element."""
    builder = tx.graph.outermost
    real = builder.real(node)
    if type(real) not in (torch.Tensor, torch.nn.Buffer, torch.nn.Parameter):
        return None
    if real.device.type != "cpu" or real.numel() != 1 or real.is_complex():
        return None
    value = tx.heap.find(real)
    if not compat.is_plain_strided(real) or not isinstance(value, TensorValue):
        return None
    if value.source is None or value.written_data is not None or written_elsewhere(tx, real):
        return None
    return None if compat.torch_function_modes() else (value.source, real)


def _operations(root: fx.Node) -> dict[fx.Node, set[int] | None] | None:
    """The nodes that a node follows from, and those that have written to one of these so far; of an
    operator on lists, the places that do. None: one of them is not known, or they are many."""
    kept: dict[fx.Node, set[int] | None] = {}
    waiting: list[tuple[fx.Node, int | None]] = [(root, None)]
    while waiting:
        node, place = waiting.pop()
        known = kept.get(node, ())
        if known is None or (place is not None and place in known):
            continue
        if len(kept) > STEPS:
            return None
        kept[node] = None if place is None else {*known, place}
        if node.op not in ("placeholder", "get_attr"):
            if not _is_known(node):
                return None
            for part in (*node.args, *node.kwargs.values()):
                waiting += [(each, None) for each in _nodes(_narrowed(part, kept[node]))]
        if place is not None or not isinstance(node.meta["val"], torch.Tensor):
            continue
        for user in node.users:
            if "out" in user.kwargs or not (of_torch(user.target) or user.op == "call_method"):
                return None
            places = _written_places(user, node)
            if places is None:
                return None
            waiting += [(user, each) for each in places]
            if not places and _shares_memory(user, node):
                waiting.append((user, None))
    return kept


def _nodes(part: Any) -> Iterator[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(part, found.append)
    return iter(found)


def _narrowed(part: Any, places: set[int] | None) -> Any:
    """Arguments of an operator on lists with the elements at these places alone."""
    if places is None:
        return part
    if isinstance(part, dict):
        return {key: _narrowed(each, places) for key, each in part.items()}
    if isinstance(part, tuple):
        return tuple(_narrowed(each, places) for each in part)
    return [part[place] for place in sorted(places)] if isinstance(part, list) else part


def _written_places(user: fx.Node, node: fx.Node) -> set[int | None] | None:
    """Where in its first argument a call writes to a node's tensor: None for the argument itself.
    No place: nowhere. No answer: that is not known."""
    name = operator_name(user.target)
    if name in PURE or name in READERS:
        return set()
    if name.startswith("_") and not name.startswith(("_foreach_", "__")):
        return None
    if not (_writes(user) and user.args):
        return set()
    first = user.args[0]
    if name.startswith("_foreach_"):
        listed = first if isinstance(first, list) else ()
        return {place for place, each in enumerate(listed) if each is node}
    return {None} if first is node else set()


def _writes(node: fx.Node) -> bool:
    name = operator_name(node.target)
    return (
        name in _IN_PLACE or name == "setitem" or (name.endswith("_") and not name.endswith("__"))
    )


def _shares_memory(user: fx.Node, node: fx.Node) -> bool:
    return any(
        compat.same_memory(one, other)
        for one in tensors_of(user.meta.get("val"))
        for other in tensors_of(node.meta["val"])
    )


def _is_known(node: fx.Node) -> bool:
    """Whether an operation is computed of its arguments alone."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = operator_name(node.target)
    if name in _IN_PLACE:
        return True
    if name.startswith("_foreach_"):
        return name.endswith("_") and name[len("_foreach_") : -1] in PURE
    return of_torch(node.target) and (name in PURE or (_writes(node) and name[:-1] in _WRITERS))


#: Python's operators in place
_IN_PLACE = frozenset(
    name for name in dir(operator) if name.startswith("i") and name[1:] in ("add", "sub", "mul")
)
_WRITERS = PURE | {"copy", "fill", "zero", "addcmul", "addcdiv", "lerp"}


def _callable(node: fx.Node) -> Callable[..., Any]:
    target: Any = node.target
    found: Callable[..., Any] = getattr(torch.Tensor, target) if isinstance(target, str) else target
    return found
