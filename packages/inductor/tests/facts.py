"""What a caller knows of a graph, as ahead-of-time autograd says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Info:
    """Facts about one graph, those of an inference graph by default."""

    kind: Literal["forward", "backward", "inference"] = "inference"
    name: str = "graph"
    static_inputs: tuple[int, ...] = ()
    saved_outputs: tuple[int, ...] = ()
    reusable_inputs: tuple[int, ...] = ()
    mutated_outputs: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
