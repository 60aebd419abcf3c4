"""The record that a graph compiler is given about its graph.

What comes in: facts established by analysis and partition. What goes out: plain frozen data.
Invariant: no tensor, node or callable in here, so that it may be hashed into a cache key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import fx

Kind = Literal["forward", "backward", "inference"]

Boxed = Callable[[list[Any]], Sequence[Any]]
"""One list in, emptied by the callee as it goes; a list or tuple out."""


@dataclass(frozen=True)
class GraphInfo:
    """Facts about one graph; tuples hold positions, in increasing order.

    static_inputs: parameters and buffers, whose addresses stay the same from call to call.
    saved_outputs: outputs kept alive for the backward graph only.
    reusable_inputs: inputs that nobody reads after this graph; the callee may overwrite them.
    mutated_outputs: outputs that are copied into an input after the call.
    updates: (output, input): of these outputs, those that the callee may write into the input's own
    memory instead, and return that very tensor: the caller sees neither the output nor the old
    value, and no other input shares the memory.
    """

    kind: Kind
    name: str = "graph"
    static_inputs: tuple[int, ...] = ()
    saved_outputs: tuple[int, ...] = ()
    reusable_inputs: tuple[int, ...] = ()
    mutated_outputs: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()


GraphCompiler = Callable[[fx.GraphModule, list[Any], GraphInfo], Boxed]
"""`compiler(gm, example_inputs, info)`; the example inputs are fake tensors."""
