"""The boxed calling convention.

What comes in: a graph module. What goes out: a callable that takes one list, empties it, and
returns the graph's outputs.
Invariant: when the graph begins to run, the caller's list holds no tensor alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from flambeau_aot.graph_module import TracedModule
from flambeau_aot.info import Boxed


def boxed(gm: fx.GraphModule) -> Boxed:
    """Run a graph module as it is, operator by operator."""
    forward = gm.ready().forward if isinstance(gm, TracedModule) else gm.forward

    def call(args: list[Any]) -> Sequence[Any]:
        inputs = tuple(args)
        args.clear()
        result: Sequence[Any] = forward(*inputs)
        return result

    return call
