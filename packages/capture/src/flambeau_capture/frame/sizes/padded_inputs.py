"""Padded inputs: which of a graph's arguments a backend is to fill up, by `sizes=`.

In: a graph and the policies of its function. Out: `meta["padding"]`, by placeholder and dimension,
or `meta["unpadded"]`, why not. Invariant: only a whole function is padded, for the promise is one
about its arguments and results; it writes to nothing that it is given and draws no numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

import torch
from torch import fx

from flambeau_capture.frame.sizes.dynamism import DynamismTracker
from flambeau_capture.graph.builder import GraphBuilder, GraphInput
from flambeau_capture.graph.operator_effects import DRAWS
from flambeau_capture.source import SizeOf, Source, SymbolExprSource


def note_padding(
    dynamics: DynamismTracker,
    code: CodeType,
    graph: GraphBuilder,
    module: fx.GraphModule,
    inputs: Sequence[GraphInput],
    is_part: bool,
) -> None:
    """Note it in the meta of the module. is_part: the function goes on after the graph."""
    if dynamics.policies is None:
        return
    found, padded = {}, set()
    nodes = module.graph.find_nodes(op="placeholder")
    for node, given in zip(nodes, inputs, strict=True):
        if own := dynamics.padding(code, given.source, given.tensor):
            found[node.name] = own
            padded |= {(given.source, dim) for dim in own}
    sources = [given.source for given in inputs]
    if found and (why := _why_not(graph, module, sources, padded, is_part)):
        module.meta["unpadded"] = why
    elif found:
        module.meta["padding"] = found


def _why_not(
    graph: GraphBuilder,
    module: fx.GraphModule,
    sources: Iterable[Source],
    padded: set[tuple[Source, int]],
    is_part: bool,
) -> str:
    given = [n.meta["val"] for n in module.graph.nodes if n.op in ("placeholder", "get_attr")]
    computed = {
        (leaf.base, leaf.key)
        for source in sources
        if isinstance(source, SymbolExprSource)
        for leaf in source.leaves()
        if isinstance(leaf, SizeOf)
    }
    if is_part:
        return "the graph ends at a break"
    if graph.effects.writes_to(x for x in given if isinstance(x, torch.Tensor)):
        return "the graph writes to a tensor that it is given"
    if DRAWS in graph.effects.other:
        return "the graph draws random numbers"
    if computed & padded:
        return "Python computes a number of a size that is to be padded"
    return ""
