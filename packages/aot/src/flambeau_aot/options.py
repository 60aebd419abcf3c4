"""Options of one compile.

What comes in: the caller's choices. What goes out: a frozen dataclass.
Invariant: hashable plain data (callables only by reference); nothing is read from the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

OpClass = Literal[
    "pointwise", "view", "shape", "reduction", "creation", "index", "random", "matmul", "leaf"
]
"""How an operator counts in the partition; see `partition.classify`."""

Classifier = Callable[[Any], OpClass | None]
"""A caller's own classes by operator; None leaves the decision to ATen's tags."""


@dataclass(frozen=True)
class Options:
    """Choices of one compile.

    name: prefix of the names compilers are given.
    compile_backward: "ahead" compiles it with the forward graph, "lazy" at its first use.
    classify: classes of operators the caller knows better than ATen's tags.
    simplify: whether to remove dead, repeated and needless operators.
    check_outputs: compare number, shape, dtype and stride of what a compiled graph returns at
        its first call with what was traced.
    higher_order: allow `create_graph=True` through the compiled graph. The derivative is traced
        and compiled when it is first asked for; inputs that it alone reads stay referenced
        between forward and backward.
    memory_budget: how much the cut may save for the backward part. None or 1.0: what costs the
        least time. A float below 1: a point between the least memory (0.0) and that. An int:
        bytes. Matrix products and library calls run twice where it takes that to get there.
    recompute_share: the part of all the work of forward and backward that may be done twice.
    """

    name: str = "graph"
    compile_backward: Literal["ahead", "lazy"] = "ahead"
    classify: Classifier | None = None
    simplify: bool = True
    check_outputs: bool = True
    higher_order: bool = True
    memory_budget: float | None = None
    recompute_share: float = 0.5
