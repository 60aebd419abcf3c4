"""Peak memory of a graph, with aliasing.

In: a graph. Out: storages, and bytes.
Invariant: a storage lives from the operator that makes it to the last one that reads a value in it;
results live on. Scratch memory inside a kernel is not seen.

Values that are gathered again: in a graph with its own backward pass, what a mark says is freed.
In: a graph in which nodes carry `node.meta["gathered"]`, the name of what they gather together, and
the mark "must_recompute". Out: the same with a second gather before the first that reads a value
after something else was gathered, or what was made of one such value alone: a cast, a transpose.
Invariant: where a gather stands depends on the order of the graph alone, so that ranks with the
same graph communicate in the same order. A graph that is cut in two has them again by its
partition; here forward and backward part are one graph, in which all that was gathered would stay
until the backward part has read it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import communicates, is_operator, is_view_op
from flambeau_aot.partition.cost import is_random, nbytes

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


GATHERED = "gathered"
AGAIN = "computed_again"
"""In the meta of a call that is made a second time on purpose: it is not merged with the first."""


def gather_again(graph: fx.Graph) -> int:
    """Put the second gathers into the graph; how many there are."""
    place = {node: at for at, node in enumerate(graph.nodes)}
    parts: dict[str, list[fx.Node]] = {}
    for node in place:
        if GATHERED in node.meta and "recompute" in node.meta:
            parts.setdefault(node.meta[GATHERED], []).append(node)
    started = {
        name: place[node]
        for name, nodes in parts.items()
        for node in nodes
        if communicates(node.target)
    }
    again = 0
    for name, nodes in parts.items():
        next_one = min((at for at in started.values() if at > started.get(name, at)), default=None)
        if next_one is None:
            continue
        own = dict.fromkeys(nodes)
        late: dict[fx.Node, None] = {}
        reached = list(nodes)
        for node in reached:  # which grows
            for user in node.users:
                if user in own or user.op == "output":
                    continue
                if place[user] > next_one:
                    late[user] = None
                elif len(user.all_input_nodes) == 1 and _is_repeatable(user):
                    own[user] = None
                    reached.append(user)
        if late:
            again += 1
            first = min(late, key=place.__getitem__)
            _copy(graph, sorted(_needed(own, late), key=place.__getitem__), list(late), first)
    return again


def _is_repeatable(node: fx.Node) -> bool:
    """Whether a call computes the same again, and does nothing else."""
    called = node.target
    return is_operator(called) and not is_random(called) and not communicates(called)


def _needed(own: Iterable[fx.Node], late: Iterable[fx.Node]) -> set[fx.Node]:
    """Those of some nodes that others depend on."""
    kept, found = set(own), set[fx.Node]()
    waiting = [source for user in late for source in user.all_input_nodes if source in kept]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [source for source in node.all_input_nodes if source in kept]
    return found


def _copy(graph: fx.Graph, nodes: list[fx.Node], late: list[fx.Node], first: fx.Node) -> None:
    """A copy of nodes before the first of those that are to read it."""
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(first):
        for node in nodes:
            copies[node] = graph.node_copy(node, lambda x: copies.get(x, x))
            copies[node].meta[AGAIN] = True
    for user in late:
        user.args = fx.map_arg(user.args, lambda x: copies.get(x, x))
        user.kwargs = fx.map_arg(user.kwargs, lambda x: copies.get(x, x))
