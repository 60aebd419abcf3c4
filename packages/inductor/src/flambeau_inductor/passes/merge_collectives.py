"""Merging of small transfers: collectives of one kind over a flat buffer, numbers from the host.

In: a graph of primitives with collectives of torch.distributed. Out: the graph, with fewer calls.
Invariant: what is merged depends on the collectives, and on which reads the result of which, and on
nothing that a rank has for itself, so that ranks with the same graph merge the same; what costs
time, what draws and what communicates keeps its order; what the caller sees as separate tensors
stays separate.

Members of a bucket are of one operator, reduction, group, dtype and device, and none reads what
another gives. The call is made where the last of them is ready, if no step that costs time reads a
result before (Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3, for gradients). What is
gathered, and what is scattered from blocks of the same rank, is what it was, to the bit. A sum that
all ranks get is added up in an order that may depend on an element's place in the buffer: in a ring
of more than two ranks it does, so that float sums may round otherwise there, as those of
DistributedDataParallel do.

Merged host-to-device transfers of numbers. In: a graph of primitives in which values of one element
(bias corrections of an optimizer's step) go from the CPU to a GPU one by one. Out: one transfer of
all in a row, before anything runs on the GPU. Invariant: the CPU computes what it did, of inputs
and constants alone; what the caller sees keeps its own memory.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor._torch_compat import COLLECTIVES, WAIT, overload_of
from flambeau_inductor.ir.nodes import name_of, value_of
from flambeau_inductor.node_queries import escaping, has_tag, strides
from flambeau_inductor.passes.rewriter import Ledger
from flambeau_inductor.reachability import reached
from flambeau_inductor.tuning.machine import link_of

CAT, CLONE = PRIMS["cat"].overload, PRIMS["clone"].overload
RESHAPE, SLICE = PRIMS["reshape"].overload, PRIMS["slice"].overload

MOVABLE = ("view", "shape", "pointwise", "creation")
"""Tags of primitives that may be computed earlier or later than the program says, for they cost no
more than a pass over memory."""
STAYS = frozenset({"random", "effect", "data_dependent", "mutating"})

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    f"{COLLECTIVES}.{name}.default"
    for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
)


BLOCKS: dict[str, Callable[[Sequence[Any]], tuple[int, int]]] = {
    ALL_REDUCE: lambda more: (1, 1),
    ALL_GATHER: lambda more: (1, int(more[0])),
    REDUCE_SCATTER: lambda more: (int(more[1]), 1),
}
"""How many equal blocks, one a rank, an operand and a result are of, given what the call is given
after its tensor."""


@dataclass(frozen=True)
class Member:
    """A collective that may be merged, and its wait. share: elements of a block."""

    call: fx.Node
    wait: fx.Node
    share: int
    bytes: int

    @property
    def kind(self) -> tuple[Any, ...]:
        value = value_of(self.call)
        return self.call.target, self.call.args[1:], value.dtype, value.device


def merge_collectives(graph: fx.Graph, ledger: Ledger | None = None) -> int:
    """Rewrite all that gains; returns how many calls became parts of others."""
    members = [each for each in map(_member, graph.nodes) if each is not None]
    merged, seen = 0, escaping(graph)
    for bucket in _buckets(graph, members):
        times = _Times(graph)
        if len(bucket) > 1 and times.allow(bucket):
            _merge(graph, bucket, times, seen)
            merged += len(bucket)
    return merged


def _member(node: fx.Node) -> Member | None:
    """What the pass knows of a node; None: it is no collective of known sizes with one wait."""
    form = BLOCKS.get(str(node.target)) if node.op == "call_function" else None
    users = list(node.users)
    if form is None or node.kwargs or len(users) != 1 or str(users[0].target) != WAIT:
        return None
    given: Any = node.args[0]
    operand, result = value_of(given), value_of(users[0])
    sizes = (*operand.shape, *result.shape, *strides(result))
    if not all(isinstance(size, int) for size in sizes) or not _dense(result):
        return None
    blocks, made = form(node.args[1:])
    share, rest = divmod(prod(operand.shape), blocks)
    if rest or not share or prod(result.shape) != share * made:
        return None
    size = max(prod(operand.shape), prod(result.shape)) * result.dtype.itemsize
    return Member(node, users[0], share, size)


def _dense(value: Any) -> bool:
    """Whether elements lie in a row in memory."""
    expected = 1
    for size, step in zip(reversed(value.shape), reversed(strides(value)), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _buckets(graph: fx.Graph, members: Sequence[Member]) -> list[list[Member]]:
    """Members by kind in order, each bucket as large as gains."""
    times = _Times(graph)
    open_: dict[tuple[Any, ...], list[Member]] = {}
    found: list[list[Member]] = []
    for each in members:
        link = link_of(value_of(each.call).device.type)
        if not link.gains(each.bytes):
            continue
        bucket = open_.get(each.kind)
        if bucket is not None and times.allow([*bucket, each]):
            if sum(member.bytes for member in (*bucket, each)) <= link.most_bytes:
                bucket.append(each)
                continue
        found.append([each])
        open_[each.kind] = found[-1]
    return found


class _Times:
    """The order of a graph: for each node the last costly step before which it cannot be, and the
    first after which it cannot be; and the collectives that it reads the results of."""

    def __init__(self, graph: fx.Graph) -> None:
        self.place = {node: at for at, node in enumerate(graph.nodes)}
        self.ready: dict[fx.Node, int] = {}
        self.reads: dict[fx.Node, int] = {}
        self._due: dict[fx.Node, int] = {}
        for node, at in self.place.items():
            sources = node.all_input_nodes
            before = max((self.ready[each] for each in sources), default=-1)
            self.ready[node] = before if _movable(node) else at
            self.reads[node] = 0
            for each in sources:
                self.reads[node] |= self.reads[each] | (_is_call(each) << self.place[each])
        for node in reversed(self.place):
            after = min((self._due[each] for each in node.users), default=len(self.place))
            self._due[node] = after if _movable(node) else self.place[node]

    def at(self, bucket: Sequence[Member]) -> int:
        """The place of the costly step after which all members are ready."""
        given = [each for member in bucket for each in member.call.all_input_nodes]
        return max(self.ready[each] for each in given)

    def allow(self, bucket: Sequence[Member]) -> bool:
        """Whether the members may be one call."""
        own = sum(1 << self.place[member.call] for member in bucket)
        if any(self.reads[member.call] & own for member in bucket):
            return False
        return self.at(bucket) < min(self._due[member.wait] for member in bucket)


def _is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and str(node.target) in BLOCKS


def _movable(node: fx.Node) -> bool:
    """Whether a node may be moved past what costs time."""
    if node.op in ("placeholder", "get_attr") or str(node.target) == WAIT:
        return True
    if node.op != "call_function" or any(has_tag(node, tag) for tag in STAYS):
        return False
    return any(has_tag(node, tag) for tag in MOVABLE)


def _merge(graph: fx.Graph, bucket: Sequence[Member], times: _Times, seen: set[fx.Node]) -> None:
    first, at = bucket[0].call, times.at(bucket)
    fixed = ("placeholder", "get_attr")
    keys = {
        node: (-2 if node.op in fixed else place, 0, place) for node, place in times.place.items()
    }
    operands = (each for member in bucket for each in member.call.all_input_nodes)
    for node in reached(operands, lambda node: node.all_input_nodes):
        if times.place[node] > at and node.op not in fixed:
            keys[node] = (at, 1, times.place[node])
    made: list[fx.Node] = []

    def add(target: Any, *args: Any) -> fx.Node:
        node = graph.call_function(target, args)
        keys[node] = (at, 2, len(made))
        made.append(node)
        return node

    more = first.args[1:]
    blocks, results = BLOCKS[str(first.target)](more)
    whole = sum(member.share for member in bucket)
    with graph.inserting_before(bucket[-1].call):
        rows = [add(RESHAPE, member.call.args[0], [blocks, member.share]) for member in bucket]
        flat = add(RESHAPE, add(CAT, rows, 1), [blocks * whole])
        call = add(first.target, flat, *more)
        wait = add(overload_of(WAIT), call)
        like = value_of(bucket[0].wait)
        for node, old in ((call, first), (wait, bucket[0].wait)):
            node.meta = {**old.meta, "val": like.new_empty([results * whole])}
        table, start = add(RESHAPE, wait, [results, whole]), 0
        for member in bucket:
            end = start + member.share
            part = add(SLICE, table, [0, start], [results, end], [1, 1])
            part = add(RESHAPE, part, list(value_of(member.wait).shape))
            if member.wait in seen:
                part = add(CLONE, part)
            part.meta = dict(member.wait.meta)
            member.wait.replace_all_uses_with(part)
            start = end
    for member in bucket:
        graph.erase_node(member.wait)
        graph.erase_node(member.call)
    _reorder(graph, keys)


def _reorder(graph: fx.Graph, keys: dict[fx.Node, tuple[int, int, int]]) -> None:
    """The order of the keys, as far as nodes come after what they read."""
    nodes = list(graph.nodes)
    missing = {node: len(node.all_input_nodes) for node in nodes}
    number = {node: at for at, node in enumerate(nodes)}
    free = [(keys[node], number[node]) for node in nodes if not missing[node]]
    heapq.heapify(free)
    last: fx.Node | None = None
    while free:
        node = nodes[heapq.heappop(free)[1]]
        if last is not None:
            last.append(node)
        last = node
        for user in node.users:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(free, (keys[user], number[user]))
    assert not any(missing.values()), "a bucket reads its own result"


DEVICE_PUT = PRIMS["device_put"].overload
LEAST = 2
"""Transfers that are worth a row."""


def gather_transfers(graph: fx.Graph) -> int:
    """Rewrite all that can be; returns how many transfers became parts of one."""
    groups: defaultdict[tuple[torch.dtype, torch.device], list[fx.Node]] = defaultdict(list)
    seen = escaping(graph)
    if not graph.find_nodes(op="placeholder"):
        return 0
    on_cpu: dict[fx.Node, bool] = {}
    for node in graph.nodes:
        source = node.args[0] if node.args else None
        if name_of(node) != "device_put" or node in seen or not isinstance(source, fx.Node):
            continue
        value, device = value_of(node), torch.device(node.kwargs["device"])
        if device.type != "cuda" or value.dtype.is_complex:
            continue
        one = all(isinstance(size, int) and size == 1 for size in value.shape)
        if one and _from_cpu(source, on_cpu):
            groups[value.dtype, device].append(node)
    gathered = 0
    for (_, device), nodes in groups.items():
        if len(nodes) >= LEAST:
            _gather(graph, nodes, device)
            gathered += len(nodes)
    return gathered


def _from_cpu(node: fx.Node, known: dict[fx.Node, bool]) -> bool:
    """Whether a value comes of inputs and constants by primitives on the CPU, without a draw."""
    waiting = [node]
    while waiting:
        item = waiting[-1]
        if item in known:
            waiting.pop()
            continue
        if not _plain_on_cpu(item):
            known[item] = False
            continue
        if unknown := [each for each in item.all_input_nodes if each not in known]:
            waiting.extend(unknown)
            continue
        known[item] = all(known[each] for each in item.all_input_nodes)
    return known[node]


def _plain_on_cpu(node: fx.Node) -> bool:
    if node.op == "call_function":
        if (name := name_of(node)) is None or PRIMS[name].tags & STAYS:
            return False
    device = getattr(value_of(node), "device", None)  # a number has none
    return device is None or device.type == "cpu"


def _gather(graph: fx.Graph, transfers: list[fx.Node], device: torch.device) -> None:
    sources = [node.args[0] for node in transfers]
    at = _hoisted(graph, [source for source in sources if isinstance(source, fx.Node)])
    with graph.inserting_after(at):
        row = graph.call_function(CAT, ([], 0))
    with graph.inserting_before(row):
        ones = [graph.call_function(RESHAPE, (source, [1])) for source in sources]
    row.args = (ones, 0)
    with graph.inserting_after(row):
        there = graph.call_function(DEVICE_PUT, (row,), {"device": device})
    for place, node in enumerate(transfers):
        with graph.inserting_before(node):
            part = graph.call_function(SLICE, (there, [place], [place + 1], [1]))
            new = graph.call_function(RESHAPE, (part, list(value_of(node).shape)))
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _hoisted(graph: fx.Graph, sources: list[fx.Node]) -> fx.Node:
    """The node after which all sources are there: what they are computed of moves to the front."""
    needed = {*reached(sources, lambda node: node.all_input_nodes)}
    order = list(graph.nodes)
    at: fx.Node = next(node for node in reversed(order) if node.op == "placeholder")
    for node in order:
        if node in needed and node.op != "placeholder":
            at.append(node)
            at = node
    return at
