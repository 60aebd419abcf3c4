"""Report of one compile.

In: numbers and texts from the stages. Out: `Report`. Invariant: plain data; every library call is
counted by name, and every one that stands in for a missing lowering has its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that the library runs because there is no kernel for it."""

    operator: str
    reason: str
    node: str


@dataclass(frozen=True, slots=True)
class Report:
    """Facts about one compiled graph.

    kernels: generated kernels launched per call (`distinct_kernels` of them differ).
    fused_ops: operations of the graph that run inside generated kernels.
    externs: library calls per run, by operator.
    fallbacks: those among them that have no lowering, with the reason.
    refused_fusions: fusions that were considered and not made.
    cache_hit: the kernels came from the disk (False too where there are none).
    cache_faults: why something could not be kept on the disk, or was found broken there.
    chosen: what was chosen by measurement, by the names of kernels and values.
    unrecorded: why a graph on a GPU is not recorded unasked, "" where it may be.
    seconds: by stage, in order. passes: seconds by pass, in order.
    sources: the texts that were generated (`kernels.cpp`, `kernels.py`, `wrapper.py`).
    """

    name: str
    kernels: int = 0
    distinct_kernels: int = 0
    fused_ops: int = 0
    externs: Mapping[str, int] = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()
    refused_fusions: int = 0
    cache_hit: bool = False
    cache_faults: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)
    unrecorded: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    passes: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON types, without the sources."""
        data = asdict(self)
        del data["sources"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], sources: Mapping[str, str] | None = None) -> Report:
        """What `to_dict` gave. Raises TypeError for fields that a report does not have."""
        known = dict(data)
        known["fallbacks"] = tuple(Fallback(**each) for each in data.get("fallbacks", ()))
        known["cache_faults"] = tuple(data.get("cache_faults", ()))
        return cls(**known, sources=sources or {})

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.kernels} kernels ({self.distinct_kernels} distinct) for"
            f" {self.fused_ops} operations, {sum(self.externs.values())} library calls,"
            f" {sum(self.seconds.values()):.2f} s"
        ]
        lines += [f"  library: {name} x{count}" for name, count in sorted(self.externs.items())]
        lines += [f"  chosen for {name}: {what}" for name, what in sorted(self.chosen.items())]
        lines += [f"  not kept on the disk: {fault}" for fault in self.cache_faults]
        lines += [f"  no kernel: {f.operator} ({f.reason}) for {f.node}" for f in self.fallbacks]
        return "\n".join(lines)
