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


class Part(torch.nn.Module):
    """A stretch of a graph, which is compiled with the tensors that first reach it."""

    def __init__(self, module: fx.GraphModule, backend: Backend) -> None:
        super().__init__()
        self.module = module
        self._backend = backend
        self._compiled: Callable[..., Any] | None = None

    def forward(self, *given: Any) -> Any:
        if self._compiled is None:
            self._compiled = self._backend(self.module, list(given))
        return self._compiled(*given)


def by_buckets(backend: Backend) -> Backend:
    """The backend; a graph inside the forward of DistributedDataParallel goes to it in parts.

    Where ranks have different graphs there, it says so (`compare_ranks`).
    """

    def divided(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        module = compat.active_ddp()
        if module is None:
            return backend(gm, example_inputs)
        compare_ranks(gm)
        limits = BucketLimits.of(module)
        parts = split(gm, limits, backend) if torch.is_grad_enabled() else None
        return backend(gm, example_inputs) if parts is None else parts.forward

    return divided


def split(gm: fx.GraphModule, limits: BucketLimits, backend: Backend) -> fx.GraphModule | None:
    """A graph of calls of parts, with about a bucket's gradients each; None where one part holds
    them all.

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
    return _divided(gm, stretches, backend)


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


def _divided(
    gm: fx.GraphModule, stretches: list[list[fx.Node]], backend: Backend
) -> fx.GraphModule:
    """The stretches as modules of their own, and the graph that calls them."""
    part_of = {node: number for number, stretch in enumerate(stretches) for node in stretch}
    graph, root = fx.Graph(), dict[str, Any]()
    made = {node: graph.node_copy(node) for node in gm.graph.find_nodes(op="placeholder")}
    for number, stretch in enumerate(stretches):
        leaving = [
            node for node in stretch
            if any(part_of.get(user, len(stretches)) > number for user in node.users)
        ]  # fmt: skip
        own, reads = _stretch(stretch, leaving)
        name = f"part_{number}"
        module = fx.GraphModule(gm, own, class_name=f"{type(gm).__name__}_{name}")
        root[name] = Part(module, backend)
        call = graph.call_module(name, tuple(made[node] for node in reads))
        for place, node in enumerate(leaving):
            made[node] = graph.call_function(operator.getitem, (call, place))
    (output,) = gm.graph.find_nodes(op="output")
    for node in output.all_input_nodes:
        if node.op == "get_attr":
            root[str(node.target)] = operator.attrgetter(str(node.target))(gm)
            made[node] = graph.node_copy(node)
    graph.node_copy(output, made.__getitem__)
    return fx.GraphModule(root, graph)


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
