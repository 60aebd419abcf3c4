"""The record of one captured graph, summed over its forward and backward halves.

In: the report objects of AOT and of the inductor. Out: one `GraphRecord`.
Invariant: seconds of different phases do not overlap: what the inductor spent inside AOT's
"compile" passes is counted once, under the inductor's own phases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import flambeau_aot
from torch import fx

from flambeau.events.records import GraphRecord

_COMPILE_PASSES = ("compile forward", "compile backward", "compile inference")


def operations(gm: fx.GraphModule) -> int:
    """Operations in a captured graph: calls, without inputs, parameters and the output."""
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


class RecordTally:
    """Sums over the graphs (forward, backward) that one captured graph became."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.kernels = 0
        self.fused_ops = 0
        self.cache_hits = 0
        self.externs: Counter[str] = Counter()
        self.no_kernel: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.cache_faults: list[str] = []
        self.from_disk = False
        self.not_cached = ""
        self.key: Any = None

    def add(self, compiled: Any) -> None:
        """One more graph came out of the inductor."""
        report = compiled.report
        self.graphs.append(compiled)
        self.kernels += report.kernels
        self.fused_ops += report.fused_ops
        self.cache_hits += bool(report.cache_hit)
        self.cache_faults.extend(report.cache_faults)
        self.externs.update(report.externs)
        self.no_kernel.update(fallback.operator for fallback in report.fallbacks)
        for phase, spent in report.seconds.items():
            self.seconds[f"inductor: {phase}"] += spent

    def record(
        self, name: str, nodes: int, aot: flambeau_aot.Report | None, seconds: float
    ) -> GraphRecord:
        """The sums as a frozen record."""
        phases = dict(self.seconds)
        if aot is not None:
            own = {k: v for k, v in aot.seconds.items() if k not in _COMPILE_PASSES}
            phases |= {f"aot: {phase}": spent for phase, spent in own.items()}
            phases["other"] = max(seconds - sum(phases.values()), 0.0)
        return GraphRecord(
            name=name,
            kind=aot.kind if aot is not None else "eager",
            nodes=nodes,
            kernels=self.kernels,
            fused_ops=self.fused_ops,
            cache_hits=self.cache_hits,
            externs=dict(self.externs),
            no_kernel=dict(self.no_kernel),
            saved_bytes=aot.saved_bytes if aot is not None else 0,
            saved_bytes_save_all=aot.saved_bytes_save_all if aot is not None else 0,
            seconds=dict(phases),
            from_disk=self.from_disk,
            not_cached=self.not_cached,
            cache_faults=tuple(self.cache_faults),
            key=self.key,
        )
