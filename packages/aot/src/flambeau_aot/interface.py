"""Interface to callers and graph compilers: options, facts of a graph, a report.

In: the caller's choices; what the passes have established. Out: frozen plain data.
Invariant: hashable where it goes into a cache key: no tensor, no node, callables by reference.
Bytes are those of the values' elements as traced; inputs merely kept referenced count as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import fx

OpClass = Literal[
    "pointwise", "view", "shape", "reduction", "creation", "index", "random", "matmul", "leaf"
]
"""How an operator counts in the partition; see `partition.cost`."""

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
        and compiled at its first use; inputs that it alone reads stay referenced
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


Kind = Literal["forward", "backward", "inference"]

Boxed = Callable[[list[Any]], Sequence[Any]]
"""One list in, emptied by the callee as it goes; a list or tuple out."""


@dataclass(frozen=True)
class GraphInfo:
    """Facts about one graph; tuples hold positions, in increasing order.

    static_inputs: parameters and buffers, whose addresses stay the same from call to call.
    saved_outputs: outputs kept alive for the backward graph only. reusable_inputs: inputs that
    nobody reads after this graph; the callee may overwrite them. mutated_outputs: outputs that are
    copied into an input after the call. updates: (output, input): of these outputs, those that the
    callee may write into the input's own memory instead, and return that very tensor: the caller
    sees neither the output nor the old value, and no other input shares the memory.
    """

    kind: Kind
    name: str = "graph"
    static_inputs: tuple[int, ...] = ()
    saved_outputs: tuple[int, ...] = ()
    reusable_inputs: tuple[int, ...] = ()
    mutated_outputs: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()


GraphCompiler = Callable[[fx.GraphModule, list[Any], GraphInfo], Boxed]
"""`compiler(gm, example_inputs, info)`; the example inputs are fake tensors. What it answers runs
in whatever autocast is in force, which must see no operator of it: the casts are in the graph."""


@dataclass(frozen=True)
class Report:
    """Counts and times of one compile.

    seconds: by pass name. recomputed: operators that run in forward and backward. saved_bytes: kept
    from forward to backward; saved_bytes_save_all: what saving everything the backward part reads
    would keep. `held_inputs`: inputs that only a derivative of second order reads, kept referenced
    for it (their bytes are the caller's). removed: operators removed, by rule. recomputed_share:
    their estimated part of all work. forward_peak_bytes, backward_peak_bytes: the most that lives
    at once beyond the inputs while a graph runs operator by operator; in the backward graph with
    what is saved. fake_runs, fake_remembered: operators whose metadata was computed, or known from
    before.
    """

    name: str
    kind: str
    joint_nodes: int
    forward_nodes: int
    backward_nodes: int = 0
    saved_tensors: int = 0
    saved_bytes: int = 0
    saved_bytes_save_all: int = 0
    held_inputs: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    recomputed_share: float = 0.0
    forward_peak_bytes: int = 0
    backward_peak_bytes: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    fake_runs: int = 0
    fake_remembered: int = 0

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.kind}, {self.joint_nodes} operators"]
        if self.kind == "training":
            lines.append(
                f"  forward {self.forward_nodes}, backward {self.backward_nodes} operators, "
                f"{len(self.recomputed)} run in both"
            )
            lines.append(
                f"  saved {self.saved_tensors} tensors, {self.saved_bytes} bytes "
                f"(saving everything: {self.saved_bytes_save_all})"
            )
        lines.extend(f"  {name}: {seconds * 1e3:.1f} ms" for name, seconds in self.seconds.items())
        return "\n".join(lines)
