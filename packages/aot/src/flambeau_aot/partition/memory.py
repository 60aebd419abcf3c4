"""Peak memory of a graph, with aliasing.

In: a graph. Out: storages, and bytes.
Invariant: a storage lives from the operator that makes it to the last one that reads a value in it;
results live on. Scratch memory inside a kernel is not seen.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import is_view_op
from flambeau_aot.partition.cost import nbytes

SNAPSHOT = "snapshot"
"""Metadata key of a copy that stands for what an input, or a result, was during the call."""


def is_snapshot(node: fx.Node) -> bool:
    """Whether a node stands for what memory was during the call: in the forward graph it is that
    memory itself, and a copy is made of one that the backward graph takes."""
    return SNAPSHOT in node.meta


# Its schema says that its result is new, and its kernels return a view.
_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default


def shares_memory(node: fx.Node) -> bool:
    """Whether an operator's results may lie in the memory of its first argument."""
    return node.op == "call_function" and (node.target is _UNSAFE_VIEW or is_view_op(node.target))


@dataclass(frozen=True)
class Storages:
    """Storages by number.

    sizes: their bytes. made: the node that makes each. `held`: by node, the storages that its value
    keeps alive; one for each part of a value of several tensors.
    """

    sizes: tuple[int, ...]
    made: tuple[fx.Node, ...]
    held: dict[fx.Node, tuple[int, ...]]


def storages(graph: fx.Graph) -> Storages:
    """The storages of a graph run operator by operator."""
    sizes: list[int] = []
    made: list[fx.Node] = []
    held: dict[fx.Node, tuple[int, ...]] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        value = node.meta["val"]
        source = node.args[0] if node.args else None
        if node.target is operator.getitem and isinstance(source, fx.Node):
            before = sum(len(_parts(part)) for part in source.meta["val"][: node.args[1]])
            held[node] = held[source][before : before + len(_parts(value))]
            continue
        parts = _parts(value)
        if shares_memory(node) and isinstance(source, fx.Node):
            held[node] = held[source] * len(parts)
            continue
        held[node] = tuple(range(len(sizes), len(sizes) + len(parts)))
        sizes.extend(nbytes(part) for part in parts)
        made.extend(node for _ in parts)
    return Storages(tuple(sizes), tuple(made), held)


def _parts(value: Any) -> list[Any]:
    """A value's tensors, of lists in a tuple one after another."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [part for item in value for part in _parts(item)]


@dataclass(frozen=True)
class OwnedStorage:
    """An input that a graph alone holds: its storage, which several may share, and its bytes."""

    storage: int
    size: int


def owned_inputs(graph: fx.Graph, saved: Sequence[fx.Node | None]) -> dict[int, OwnedStorage]:
    """What the backward graph alone holds of these values of a joint graph, by position."""
    found = storages(graph)
    result = {}
    for place, node in enumerate(saved):
        if node is not None:
            (number,) = found.held[node]
            maker = found.made[number]
            copied = maker.op == "placeholder"
            size = nbytes(node.meta["val"]) if copied else found.sizes[number]
            result[place] = OwnedStorage(-1 - place if copied else number, size)
    return result


def live_bytes(graph: fx.Graph, values: Iterable[fx.Node], copied: Collection[fx.Node]) -> int:
    """Bytes of the storages that these values keep alive, inputs being somebody else's.

    copied: inputs that are copied to be kept, views of them too.
    """
    found = storages(graph)
    whole: set[int] = set()
    copies = 0
    for node in values:
        for number in found.held[node]:
            maker = found.made[number]
            if maker.op != "placeholder":
                whole.add(number)
            elif maker in copied:
                copies += nbytes(node.meta["val"])
    return copies + sum(found.sizes[number] for number in whole)


def peak_bytes(graph: fx.Graph, owned: Mapping[int, OwnedStorage] | None = None) -> int:
    """Bytes alive at the worst moment, of values made here and of the inputs `owned`.

    owned: inputs that nobody else holds, by position; they are let go after their last use.
    """
    found = storages(graph)
    nodes = list(graph.nodes)
    place_of = {node: place for place, node in enumerate(nodes)}
    inputs = [node for node in nodes if node.op == "placeholder"]
    death = [0] * len(found.sizes)
    for node, numbers in found.held.items():
        last = max([place_of[user] for user in node.users], default=place_of[node])
        for number in numbers:
            death[number] = max(death[number], last)
    change = [[0, 0] for _ in nodes]
    groups: dict[int, tuple[int, int]] = {}
    for place, item in (owned or {}).items():
        last = death[found.held[inputs[place]][0]]
        groups[item.storage] = (item.size, max(last, groups.get(item.storage, (0, 0))[1]))
    for size, last in groups.values():
        change[0][0] += size
        change[last][1] += size
    for number, size in enumerate(found.sizes):
        maker = found.made[number]
        if maker.op != "placeholder":
            change[place_of[maker]][0] += size
            change[death[number]][1] += size
    alive = peak = 0
    for born, died in change:
        alive += born
        peak = max(peak, alive)
        alive -= died
    return peak
