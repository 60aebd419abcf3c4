"""Graph splitting at gradient buckets under DistributedDataParallel.

In: a captured graph whose parameters are attributes, and the sizes of the buckets. Out: parts that
run one after the other; each is compiled by itself when it is first reached.
Invariant: a part's gradients are complete when its own backward ends, so that the bucket they fill
is sent while the parts before it still compute. A graph compiled whole would give all gradients at
its end, with nothing left to overlap (Li et al., PyTorch Distributed, VLDB 2020, section 4.2).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from flambeau_aot.sizes import has_symbols
from torch import fx
from torch.nn.parallel import DistributedDataParallel

from flambeau import _torch_compat as compat
from flambeau.distributed.ranks import compare_ranks

if TYPE_CHECKING:
    from flambeau.backends.request import Backend  # its package has this among its layers


@dataclass(frozen=True)
class BucketLimits:
    """Bytes of gradients that a bucket takes: the first to be sent, and each one after it."""

    first: int
    other: int

    @classmethod
    def of(cls, module: DistributedDataParallel) -> BucketLimits:
        """Those of a wrapped module: its `bucket_cap_mb`, and torch's smaller first bucket."""
        other = int(module.bucket_bytes_cap)
        return cls(min(compat.first_bucket_bytes(), other), other)


@dataclass(frozen=True)
class GraphBucket:
    """A stretch of the graph. `reads` and `writes`: slots of the values that cross its borders."""

    module: fx.GraphModule
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """A graph in parts. `inputs` and `outputs`: slots; an output that is no tensor stands as is."""

    parts: tuple[GraphBucket, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Any, ...]
    slots: int


@dataclass(frozen=True)
class OutputSlot:
    """Where an output of the whole graph is found."""

    index: int


def by_buckets(backend: Backend) -> Backend:
    """The backend; a graph inside the forward of DistributedDataParallel goes to it in parts.

    Where ranks have different graphs there, it says so (`compare_ranks`).
    """

    def divided(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        module = compat.active_ddp()
        if module is None:
            return backend(gm, example_inputs)
        compare_ranks(gm)
        parts = split(gm, BucketLimits.of(module)) if torch.is_grad_enabled() else None
        return backend(gm, example_inputs) if parts is None else _Runner(parts, backend)

    return divided


def split(gm: fx.GraphModule, limits: BucketLimits) -> Parts | None:
    """The graph in parts of about a bucket's gradients each; None where one part holds them all.

    A graph with open sizes is left whole: its parts are compiled after capture has closed them.
    """
    if any(has_symbols(node.meta.get("val")) for node in gm.graph.nodes):
        return None
    nodes = [
        node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")
    ]
    cuts = _cuts(gm, nodes, limits)
    if not cuts:
        return None
    borders = [0, *cuts, len(nodes)]
    stretches = [nodes[a:b] for a, b in itertools.pairwise(borders)]
    return _parts(gm, stretches)


def _cuts(gm: fx.GraphModule, nodes: list[fx.Node], limits: BucketLimits) -> list[int]:
    """Positions before which a part begins, in the graph's order."""
    allowed = _allowed(nodes)
    due = _due(gm, nodes)
    cuts: list[int] = []
    filled, limit = 0, limits.first
    for position in range(len(nodes) - 1, 0, -1):
        filled += due[position]
        if filled >= limit and position in allowed and any(due[:position]):
            cuts.append(position)
            filled, limit = 0, limits.other
    return cuts[::-1]


def _due(gm: fx.GraphModule, nodes: list[fx.Node]) -> list[int]:
    """Bytes of the gradients that are complete once backward has passed each node."""
    place = {node: position for position, node in enumerate(nodes)}
    bytes_at = [0] * len(nodes)
    first_read: dict[int, tuple[int, int]] = {}
    for node in gm.graph.nodes:
        if node.op != "get_attr":
            continue
        value = operator.attrgetter(str(node.target))(gm)
        readers = [place[user] for user in node.users if user in place]
        if isinstance(value, torch.Tensor) and value.requires_grad and readers:
            size = value.numel() * value.element_size()
            before = first_read.get(id(value), (len(nodes), size))
            first_read[id(value)] = (min(*readers, before[0]), size)
    for position, size in first_read.values():
        bytes_at[position] += size
    return bytes_at


def _allowed(nodes: list[fx.Node]) -> set[int]:
    """Positions where only tensors cross, outside of any mode that the graph enters."""
    place = {node: position for position, node in enumerate(nodes)}
    last = {
        node: max((place.get(user, len(nodes)) for user in node.users), default=-1)
        for node in nodes
    }
    found: set[int] = set()
    open_modes, recording, pending = 0, True, -1
    for position, node in enumerate(nodes):
        if open_modes == 0 and recording and pending < position:
            found.add(position)
        if node.target is compat.set_grad_enabled:
            recording = bool(node.args[0])
        elif node.target in compat.MODE_ENTRIES:
            open_modes += 1
        elif node.target in compat.MODE_EXITS:
            open_modes -= 1
        if not isinstance(node.meta.get("val"), torch.Tensor):
            pending = max(pending, last[node])
    return found


def _parts(gm: fx.GraphModule, stretches: list[list[fx.Node]]) -> Parts:
    """The stretches as modules of their own, with slots for what crosses between them."""
    part_of = {node: number for number, stretch in enumerate(stretches) for node in stretch}
    (output,) = gm.graph.find_nodes(op="output")
    slots: dict[fx.Node, int] = {}
    inputs = gm.graph.find_nodes(op="placeholder")
    for node in inputs:
        slots[node] = len(slots)
    made = []
    for number, stretch in enumerate(stretches):
        leaving = [
            node for node in stretch
            if any(part_of.get(user, len(stretches)) > number for user in node.users)
        ]  # fmt: skip
        graph, reads = _stretch(stretch, leaving)
        for node in leaving:
            slots[node] = len(slots)
        module = fx.GraphModule(gm, graph, class_name=f"{type(gm).__name__}_part_{number}")
        made.append(
            GraphBucket(module, tuple(slots[n] for n in reads), tuple(slots[n] for n in leaving))
        )
    results = fx.map_arg(output.args[0], lambda node: _result(gm, slots, node))
    return Parts(tuple(made), tuple(slots[node] for node in inputs), tuple(results), len(slots))


def _stretch(stretch: list[fx.Node], leaving: list[fx.Node]) -> tuple[fx.Graph, list[fx.Node]]:
    """A graph of some nodes, and the nodes elsewhere that it reads, in the order of its inputs."""
    own = set(stretch)
    foreign = dict.fromkeys(r for node in stretch for r in node.all_input_nodes if r not in own)
    reads = [node for node in foreign if node.op != "get_attr"]
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in reads:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in [each for each in foreign if each.op == "get_attr"] + stretch:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in leaving))
    return graph, reads


def _result(gm: fx.GraphModule, slots: dict[fx.Node, int], node: fx.Node) -> Any:
    if node.op == "get_attr":
        return operator.attrgetter(str(node.target))(gm)
    return OutputSlot(slots[node])


class _Runner:
    """Runs the parts; compiles each with the tensors that first reach it."""

    def __init__(self, parts: Parts, backend: Backend) -> None:
        self._parts = parts
        self._backend = backend
        self._compiled: list[Callable[..., Any] | None] = [None] * len(parts.parts)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values: list[Any] = [None] * self._parts.slots
        for slot, value in zip(self._parts.inputs, inputs, strict=True):
            values[slot] = value
        for number, part in enumerate(self._parts.parts):
            given = operator.itemgetter(*part.reads)(values) if part.reads else ()
            given = (given,) if len(part.reads) == 1 else given
            compiled = self._compiled[number]
            if compiled is None:
                compiled = self._compiled[number] = self._backend(part.module, list(given))
            for slot, value in zip(part.writes, compiled(*given), strict=True):
                values[slot] = value
        return tuple(
            values[e.index] if isinstance(e, OutputSlot) else e for e in self._parts.outputs
        )
