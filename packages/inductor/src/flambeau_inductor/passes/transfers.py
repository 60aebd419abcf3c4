"""Merged host-to-device transfers of numbers.

In: a graph of primitives in which values of one element (bias corrections of an optimizer's step)
go from the CPU to a GPU one by one. Out: one transfer of all in a row, before anything runs on the
GPU. Invariant: the CPU computes what it did, of inputs and constants alone; what the caller sees
keeps its own memory.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import name_of, value_of
from flambeau_inductor.node_queries import escaping
from flambeau_inductor.reachability import reached

CAT, DEVICE_PUT = PRIMS["cat"].overload, PRIMS["device_put"].overload
RESHAPE, SLICE = PRIMS["reshape"].overload, PRIMS["slice"].overload
LEAST = 2
"""Transfers that are worth a row."""
STAYS = frozenset({"data_dependent", "effect", "mutating", "random"})
"""Tags of primitives that are not computed earlier than the program says."""


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
        unknown = [each for each in item.all_input_nodes if each not in known]
        if unknown:
            waiting.extend(unknown)
            continue
        known[item] = all(known[each] for each in item.all_input_nodes)
    return known[node]


def _plain_on_cpu(node: fx.Node) -> bool:
    if node.op == "call_function":
        name = name_of(node)
        if name is None or PRIMS[name].tags & STAYS:
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
