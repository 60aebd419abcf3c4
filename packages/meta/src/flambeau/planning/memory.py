"""Memory estimate of a captured graph, from metadata.

In: a captured graph whose nodes have fake values. Out: bytes. Invariant: an upper bound in the
sense that nothing is fused and everything a backward half might read is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: of parameters and inputs; at most alive beyond them while running forward; of all
    values that a backward half might keep (0 without one)."""

    held: int
    peak: int
    kept: int


def memory_of(gm: fx.GraphModule, training: bool) -> MemoryPlan:
    """The plan of one graph."""
    nodes = list(gm.graph.nodes)
    last: dict[fx.Node, int] = {}
    for place, node in enumerate(nodes):
        for source in node.all_input_nodes:
            last[source] = place
    held = sum(_bytes(node) for node in nodes if node.op in ("placeholder", "get_attr"))
    live: dict[fx.Node, int] = {}
    peak = made = 0
    for place, node in enumerate(nodes):
        if node.op in ("call_function", "call_method"):
            live[node] = 0 if _is_view(node) else _bytes(node)
            made += live[node]
        peak = max(peak, sum(live.values()))
        for source in node.all_input_nodes:
            if last[source] == place and not training:
                live.pop(source, None)
    return MemoryPlan(held, peak, made if training else 0)


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        value = _attribute(node)
    values = value if isinstance(value, tuple | list) else (value,)
    return sum(
        int(item.numel()) * item.element_size() for item in values if isinstance(item, torch.Tensor)
    )


def _attribute(node: fx.Node) -> Any:
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part, None)
    return value


#: methods and functions whose result looks at their first argument's memory
VIEWS = frozenset(
    {
        "view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "flatten",
        "chunk", "split", "getitem", "detach", "narrow", "select", "unbind",
    }
)  # fmt: skip


def _is_view(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in VIEWS
